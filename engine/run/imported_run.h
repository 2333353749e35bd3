// Runs that began from another program's weights (`assay import`), as their imported.json says.
// Training cannot make those weights again.
#pragma once

#include <cstdint>
#include <string>

namespace assay {

// Whether the run, or the trunk of a branch, began so; false for no run ("").
bool is_imported(const std::string& run);

// A text that its imported.json has; "" if there is none. UserError if the file cannot be read.
std::string imported_text(const std::string& run, const char* key);

// UserError if the model was imported with a sliding window of attention that is shorter than this
// context, in tokens: all of the context would be attended to. setting: what sets the context.
constexpr const char* kImportedWindow = "sliding_window";  // in imported.json
void require_within_window(const std::string& run, int64_t context, const std::string& setting);

// The folder that the model was imported from; "" if that is not known.
std::string imported_folder(const std::string& run);

// For a hint: the command that begins another run with the same weights and other values.
std::string import_again(const std::string& run);

// UserError if the run was imported: --fresh would delete its weights and begin from random ones.
void require_no_imported_weights(const std::string& run);

// That a new run with this configuration begins from random weights although the configuration is
// that of an imported run; "" if no imported.json lies beside it.
std::string random_weights_text(const std::string& config);

}  // namespace assay
