// The SIMT emulator's bodies of the wrappers in cuda/kernel.
#pragma once

#include "cuda/simt/async.h"
#include "cuda/simt/cluster.h"
#include "cuda/simt/mma.h"
#include "cuda/simt/source_location.h"
#include "cuda/simt/threads.h"
#include "cuda/simt/tma.h"
#include "cuda/simt/wgmma.h"
