/* src/base: the lowest floor. Status and error text, log, data types, strings, JSON, the
 * counter-based random generator, memory categories and their ledger, checks of output files, HTML
 * pages, the configuration reader, and the disk lane. It calls only the C library, libyaml, xxHash
 * and liburing. Start reading at status.h, then dtype.h; config.h and disk.h are modules of their
 * own. */
#ifndef ZERO3D_BASE_BASE_H
#define ZERO3D_BASE_BASE_H

#include "src/base/codec.h"
#include "src/base/dtype.h"
#include "src/base/host_memory.h"
#include "src/base/json.h"
#include "src/base/ledger.h"
#include "src/base/log.h"
#include "src/base/optimizers.h"
#include "src/base/output.h"
#include "src/base/pending_io.h"
#include "src/base/problems.h"
#include "src/base/progress.h"
#include "src/base/rng.h"
#include "src/base/status.h"
#include "src/base/strings.h"

#endif
