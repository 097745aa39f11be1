//! Tests of the whole namespace. Each submodule is about one promise; [`world`] generates and
//! runs the operations they share, [`tree`] makes two namespaces comparable.

mod agreement;
mod checkpoint;
mod handover;
mod judge;
mod listing;
mod lists;
mod merge;
mod pages;
mod quotas;
mod scale;
mod trash;
mod tree;
mod world;
