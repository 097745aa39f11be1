use super::{Preset, policy_named, policy_names};
use crate::{Cell, InterferePolicy, Policy};

#[test]
fn every_preset_parses_without_a_warning_and_gives_its_cell() {
    let expected = [
        ("posix", "rpcs+stream", "strong-global"),
        ("posix-volatile", "rpcs", "strong-none"),
        ("indexfs", "rpcs+stream", "strong-global"),
        ("hdfs", "append_client_journal+global_persist+volatile_apply", "weak-global"),
        ("batchfs", "append_client_journal+local_persist+volatile_apply", "weak-local"),
        ("deltafs", "append_client_journal+local_persist", "invisible-local"),
        ("ramdisk", "append_client_journal", "invisible-none"),
    ];
    assert_eq!(Preset::ALL.len(), expected.len());
    for (preset, (name, effective, cell)) in Preset::ALL.into_iter().zip(expected) {
        let parsed = Policy::parse(preset.text).unwrap();
        assert_eq!(preset.name, name);
        assert_eq!(parsed.warnings, [], "{name}");
        assert_eq!(parsed.policy.effective().to_string(), effective);
        assert_eq!(parsed.policy.cell().unwrap().to_string(), cell);
        assert_eq!(Preset::by_name(name), Some(preset));
        assert_eq!(preset.policy(), parsed.policy);
        assert!(preset.description.ends_with('.'));
    }
    assert_eq!(Preset::by_name("posix").unwrap().policy(), Policy::default());
    assert_eq!(Preset::by_name("BatchFS").unwrap().policy().interfere, InterferePolicy::Block);
}

#[test]
fn every_name_has_a_policy() {
    assert_eq!(policy_names().len(), 7 + 9);
    for name in policy_names() {
        assert!(policy_named(&name).is_some(), "{name}");
    }
    for cell in Cell::all() {
        let policy = policy_named(&cell.to_string()).unwrap();
        assert_eq!(policy.cell(), Some(cell));
        assert_eq!(policy.warnings(), []);
    }
    assert_eq!(policy_named("weak"), None);
}

#[test]
fn a_name_or_a_text_is_taken_for_what_it_is() {
    let read = |text: &str| Policy::from_name_or_text(text);
    assert_eq!(read("ramdisk").unwrap().policy, Preset::by_name("ramdisk").unwrap().policy());
    assert_eq!(read(" Weak Global ").unwrap().policy.cell().unwrap().to_string(), "weak-global");
    assert_eq!(read("durability: none").unwrap().policy.effective().to_string(), "rpcs");
    assert_eq!(read("").unwrap().policy, Policy::default());
    assert_eq!(read("---").unwrap().policy, Policy::default());
    let error = read("batch-fs").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1, column 1: `batch-fs` names no preset; did you mean `batchfs`?"
    );
}
