// The contract of a matrix's table: what it is, whether it gives the models one quantity, and
// whether their runs keep it.
#pragma once

#include <string>
#include <vector>

#include "lab/matrix/summary.h"

namespace assay {

// "20 tokens per active parameter", "2.1e+12 training FLOPs, as in dense-active's run". Under
// `steps` the models of the matrix may have numbers of their own.
std::string contract_text(const MatrixContract& contract, const Matrix& matrix);

// Whether the models take different numbers of steps, which no contract gives them.
bool takes_own_steps(const MatrixContract& contract, const Matrix& matrix);

// Why the losses under a contract are not those of one contract; "" if they are. Without contracts
// the models may bring one: the same tokens per parameter, say.
std::string why_no_ranking(const MatrixContract& contract, const Matrix& matrix);

// "Not held fixed: tokens per step: 512 in a, 1024 in b.", of the finished runs of these rows of
// the table; "" if the contract is kept, and, unless it is in seconds, of fewer than two rows with
// runs. Steps that the table says are the models' own are not compared, all else is.
std::string why_not_held(const ContractTable& table, const std::vector<const SummaryRow*>& rows);

}  // namespace assay
