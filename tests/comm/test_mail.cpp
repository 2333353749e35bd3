// Letters between ranks: run it under mpirun with any number of processes. A failure on one rank
// ends the job.
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "comm/launch.h"

namespace assay {
namespace {

void expect(bool holds, const char* what, int letter) {
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s, letter %d\n", what, letter);
  std::exit(1);  // mpirun ends the others
}

// Letter i from a to b: its bytes depend on all three. Most are short; some are empty, and some as
// long as a letter may be.
std::string letter(int i, int from, int to) {
  RandomSequence random({11, uint64_t(i), uint32_t(from * 1000 + to)});
  size_t bytes = random.below(100);
  if (random.below(10) == 0) bytes = random.below(100000);
  if (i % 100 == 50) bytes = kMostMailBytes;
  std::string text(bytes, '\0');
  const uint32_t start = random.below(256);
  for (size_t b = 0; b < bytes; ++b) text[b] = char(start + b * 31 + (b >> 8));
  return text;
}

// Every rank sends `letters` to every rank, itself included, before or while it reads its own.
void check(Mail& mail, const World& world, int first, int letters, int read_every) {
  const int ranks = world.size(), me = world.rank();
  std::vector<int> next(size_t(ranks), first);
  int missing = letters * ranks;
  const auto read = [&] {
    const auto received = mail.receive();
    if (!received) return false;
    expect(received->from >= 0 && received->from < ranks, "the sender", missing);
    int& i = next[size_t(received->from)];
    expect(received->text == letter(i, received->from, me), "text and order", i);
    ++i;
    --missing;
    return true;
  };
  for (int i = first; i < first + letters; ++i) {
    for (int to = 0; to < ranks; ++to) mail.send(to, letter(i, me, to));
    if (i % read_every == 0) read();
  }
  const auto begin = std::chrono::steady_clock::now();
  while (missing > 0) {
    if (!read()) sched_yield();
    expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60), "in time", missing);
  }
  for (const int i : next) expect(i == first + letters, "every sender's letters", i);
}

int run() {
  const std::unique_ptr<World> world = join_world();
  {
    const auto everybody = world->group(0);
    const auto barrier = [&] {
      int64_t one = 1;
      everybody->sum_integers({}, {&one, {1}});
    };
    const auto mail = world->mail(), other = world->mail();
    // Between two barriers no letter is under way.
    const auto expect_none = [&](const char* what) {
      barrier();
      expect(!mail->receive(), what, 0);
      barrier();
    };
    expect_none("no letter before the first");
    check(*mail, *world, 0, 400, 1);
    expect_none("no letter twice");
    check(*mail, *world, 1000, 400, 1 << 30);
    expect_none("no letter twice, sent at once");
    // Two mails do not mix.
    mail->send(0, "mail");
    other->send(0, "other");
    if (world->rank() == 0) {
      for (int r = 0; r < world->size(); ++r) {
        for (Mail* const from : {other.get(), mail.get()}) {
          auto received = from->receive();
          while (!received) received = from->receive();
          expect(received->text == (from == mail.get() ? "mail" : "other"), "the other mail's", r);
        }
      }
    }
    barrier();
    // Letters that nobody reads do not keep anybody from ending.
    mail->send((world->rank() + 1) % world->size(), "unread");
    mail->send((world->rank() + 1) % world->size(), std::string(3500, 'x'));
  }
  if (world->rank() == 0) std::printf("mail of %d: ok\n", world->size());
  return 0;
}

}  // namespace
}  // namespace assay

int main() {
  try {
    return assay::run();
  } catch (const assay::UserError& error) {
    std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
    return 1;
  }
}
