#!/usr/bin/env python3
"""Reads PTX and fails if an instruction accesses an accumulator of wgmma between the product and
the wgmma.wait_group that covers it, or if there is no product at all. In CUDA C++ nothing ties the
wait to the accumulator's registers, so this checks that no compiler pass has moved a use across the
wait. It follows the order of the text and copies between registers."""
import re
import sys

REGISTER = re.compile(r"%[fr]\d+")
COPY = re.compile(r"\s*mov\.\w+\s+(%\w+),\s*(%\w+);")


def early_uses(body):
    """The lines of a kernel that access accumulators in flight, and the number of products."""
    open_batch, batches, uses, products = set(), [], [], 0
    for line in body.splitlines():
        if "wgmma.mma_async" in line:
            products += 1
            operands = line[line.index("wgmma.mma_async"):]
            open_batch |= set(REGISTER.findall(operands[:operands.index("}")]))
        elif "wgmma.commit_group" in line:
            batches.append(open_batch)
            open_batch = set()
        elif wait := re.search(r"wgmma\.wait_group\S*\s+(\d+)", line):
            pending = int(wait[1])
            batches = batches[-pending:] if pending else []
        else:
            in_flight = open_batch.union(*batches)
            if in_flight.isdisjoint(REGISTER.findall(line)):
                continue
            if copy := COPY.match(line):
                for batch in [*batches, open_batch]:
                    if copy[2] in batch:
                        batch.add(copy[1])
            else:
                uses.append(line.strip())
    return uses, products


def main():
    failed, products = False, 0
    for path in sys.argv[1:]:
        text = open(path).read()
        starts = [m.start() for m in re.finditer(r"\.entry \w+\(", text)] + [len(text)]
        for begin, end in zip(starts, starts[1:]):
            uses, count = early_uses(text[begin:end])
            products += count
            for use in uses:
                print(f"{text[begin:end].split('(')[0]}: accumulator used before its wait: {use}")
                failed = True
    if products == 0:
        print(f"wgmma: no product in {' '.join(sys.argv[1:])}")
        failed = True
    if not failed:
        print(f"wgmma: {products} products, no accumulator is used before its wait")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
