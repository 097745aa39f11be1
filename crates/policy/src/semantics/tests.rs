use super::{Cell, Consistency, Durability, composition_of};
use crate::Composition;
use crate::warning::warnings;

fn cell_of(text: &str) -> Option<String> {
    Cell::of(&Composition::parse(text).unwrap()).map(|cell| cell.to_string())
}

#[test]
fn table_two_is_as_published() {
    use {Consistency as C, Durability as D};
    for (consistency, durability, text) in [
        (C::Invisible, D::None, "append_client_journal"),
        (C::Invisible, D::Local, "append_client_journal+local_persist"),
        (C::Invisible, D::Global, "append_client_journal+global_persist"),
        (C::Weak, D::None, "append_client_journal+volatile_apply"),
        (C::Weak, D::Local, "append_client_journal+local_persist+volatile_apply"),
        (C::Weak, D::Global, "append_client_journal+global_persist+volatile_apply"),
        (C::Strong, D::None, "rpcs"),
        (C::Strong, D::Local, "rpcs+local_persist"),
        (C::Strong, D::Global, "rpcs+stream"),
    ] {
        assert_eq!(composition_of(consistency, durability).to_string(), text);
    }
}

#[test]
fn every_cell_is_recognised_by_its_composition_and_its_name() {
    assert_eq!(Cell::all().count(), 9);
    for cell in Cell::all() {
        assert_eq!(Cell::of(&cell.composition()), Some(cell));
        assert_eq!(Cell::from_name(&cell.to_string().to_uppercase()), Some(cell));
        assert_eq!(Cell::from_name(&cell.to_string().replace('-', " ")), Some(cell));
        assert_eq!(warnings(&cell.composition()), []);
    }
    assert_eq!(Cell::from_name("weak"), None);
}

#[test]
fn other_compositions_are_classified_by_what_they_give() {
    for (text, cell) in [
        ("create+apply", Some("weak-global")),
        ("create+save+apply", Some("weak-global")),
        ("create+save||persist", Some("invisible-global")),
        ("create+(save||persist)+v.apply", Some("weak-global")),
        ("rpcs||stream", Some("strong-global")),
        ("rpcs+persist", Some("strong-global")),
        ("rpcs+stream+save", Some("strong-global")),
        ("create+stream", Some("invisible-none")),
        ("create+v.apply+save", Some("weak-local")),
        ("create+rpcs", None),
        ("stream", None),
        ("v.apply", None),
        ("none", None),
    ] {
        assert_eq!(cell_of(text).as_deref(), cell, "{text}");
    }
}

#[test]
fn a_mechanism_that_may_miss_updates_counts_for_nothing() {
    for (text, cell) in [
        ("save+create", "invisible-none"),
        ("create||save", "invisible-none"),
        ("create+persist+create", "invisible-none"),
        ("v.apply+create", "invisible-none"),
        ("create||apply", "invisible-none"),
        ("(create+save)||v.apply", "invisible-local"),
        ("rpcs||save", "strong-none"),
    ] {
        assert_eq!(cell_of(text).as_deref(), Some(cell), "{text}");
    }
}

#[test]
fn the_halves_of_a_cell_make_its_composition() {
    for cell in Cell::all() {
        let (consistency, durability) = cell.expressions();
        assert_eq!(crate::effective::effective(&consistency, &durability), cell.composition());
    }
}

#[test]
fn guarantees_are_described_in_words() {
    let weak_local = Cell { consistency: Consistency::Weak, durability: Durability::Local };
    expect_test::expect![[r#"
        others see updates: after the merge
        client killed, same disk: kept
        client gone for good: lost if not yet merged
        metadata server killed: kept: the client merges again from its file
        minority of the store lost: kept"#]]
    .assert_eq(&weak_local.guarantee().to_string());
    for cell in Cell::all().filter(|cell| cell.durability == Durability::Global) {
        assert!(cell.guarantee().client_gone.starts_with("kept"), "{cell}");
        assert!(cell.guarantee().mds_killed.starts_with("kept"), "{cell}");
    }
}
