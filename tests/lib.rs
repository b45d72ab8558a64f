//! This package contains only tests; see `structure` and `regressions`.
