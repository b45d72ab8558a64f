//! Nothing but tests; see `structure` and `regressions`.
