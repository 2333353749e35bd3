#!/usr/bin/env bash
# Training steps of Assay and of PyTorch on this machine's CPU, in turn: --help.
exec python3 "$(dirname "$0")/cpu.py" "$@"
