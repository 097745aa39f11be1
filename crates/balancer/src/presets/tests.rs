use super::*;

#[test]
fn every_shipped_policy_compiles_and_keeps_its_name() {
    for preset in PRESETS {
        let policy = BalancerPolicy::parse(preset.name, preset.text);
        let policy = policy.unwrap_or_else(|fault| panic!("{}: {fault}", preset.name));
        assert_eq!(super::preset(preset.name), Some(policy));
    }
    assert_eq!(preset("nothing"), None);
    assert_eq!(default_policy().name(), "cephfs");
}
