/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* route: frames for the router's own addresses. crates/pipeline/src/stages/route.rs is what it has to do; until it does,
 * the plane refuses router interfaces. */
