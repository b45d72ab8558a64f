//! The measuring tools.
