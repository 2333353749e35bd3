// Data under a name: a loss is compared with a published one only on the text of that study.
//
// A folder's reference.json names the data and what its files must be; tools/get_fineweb.sh writes
// it when the hashes are those of the server:
//
//   {"name": "kjj0/fineweb10B-gpt2", "sha256": {"fineweb_val_000000.bin": "..."}}
#pragma once

#include <string>
#include <vector>

#include "data/hash_files.h"

namespace assay {

// reference: data.reference. UserError unless it is any, or every validation shard is this data:
// a name that the reference.json in its folder gives with the shard's hash, or 64 hexadecimal
// digits, the SHA-256 of the only shard. hashed has all of `val`.
void require_reference(const std::string& reference, const std::vector<std::string>& val,
                       const HashedFiles& hashed);

}  // namespace assay
