#!/usr/bin/env bash
# Compiles calls that mean something else than they seem to, and checks what the compiler says.
set -euo pipefail
python3 tests/docs/wrong_calls_test.py
