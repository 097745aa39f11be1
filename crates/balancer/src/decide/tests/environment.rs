//! Every name that a policy may use, in both dialects.

use super::*;

fn said(policy: &BalancerPolicy, view: &BalancerView, state: &State) -> Vec<String> {
    let decision = decide(policy, view, state);
    assert_eq!(decision.fault(), None);
    decision.log.into_iter().map(|line| line.text).collect()
}

fn full_view() -> BalancerView {
    let mut view = view(1, &[10.0, 30.0, 5.0]);
    view.auth =
        Counts { inode_reads: 1.0, inode_writes: 2.0, readdirs: 3.0, fetches: 4.0, stores: 5.0 };
    view.all = view.auth.times(2.0);
    view.ranks[1] = Metrics {
        auth: 11.0,
        all: 12.0,
        cpu_percent: 13.0,
        mem_percent: 14.0,
        queue: 15.0,
        requests_per_second: 16.0,
        request_seconds: 17.0,
        inodes: 18.0,
        age_seconds: 19.0,
    };
    view
}

#[test]
fn every_name_of_table_2_is_there_and_counted_from_1() {
    let code = r#"
for _, key in ipairs({"auth", "all", "cpu", "mem", "q", "req", "load", "cost", "files", "nfiles", "age"}) do
  print(key, MDSs[whoami][key])
end
print(whoami, #MDSs, #targets, total, i)
print(IRD, IWR, READDIR, FETCH, STORE)
print(authmetaload, authmetadata, allmetaload, allmetadata)
print(max(3, 4), min(3, 4), Max(3, 4), Min(3, 4), tick, movecost, hottest)
if false then"#;
    expect_test::expect![[r#"
        auth 11
        all 12
        cpu 13
        mem 14
        q 15
        req 16
        load 12
        cost 17
        files 18
        nfiles 18
        age 19
        2 3 3 27 nil
        1 2 3 4 5
        2 2 4 4
        4 3 4 3 10 0.01 0.25"#]]
    .assert_eq(&said(&mantle(code), &full_view(), &State::Nothing).join("\n"));
}

#[test]
fn load_is_what_mdsload_says_and_total_their_sum() {
    let text = "-- Metadata server load\nmdsload = 0.8*MDSs[i][\"auth\"] + 0.2*MDSs[i][\"all\"]\n\
                \t+ MDSs[i][\"req\"] + 10*MDSs[i][\"q\"]\n-- When policy\nprint(total)\nif false then";
    let policy = BalancerPolicy::parse("test", text).unwrap();
    let own = 0.8 * 11.0 + 0.2 * 12.0 + 16.0 + 150.0;
    let decision = decide(&policy, &full_view(), &State::Nothing);
    assert_eq!(decision.loads, [10.0, own, 5.0]);
    assert_eq!(decision.log[0].text, (10.0 + own + 5.0).to_string());
}

#[test]
fn metaload_weighs_what_table_1_says() {
    let counts =
        Counts { inode_reads: 1.0, inode_writes: 10.0, readdirs: 100.0, fetches: 1e3, stores: 1e4 };
    assert_eq!(default_policy().metaload(&[counts], &crate::Expired::never()).unwrap(), [42_121.0]);
    let ceph = BalancerPolicy::parse("test", "return {0}").unwrap();
    assert_eq!(ceph.metaload(&[counts], &crate::Expired::never()).unwrap(), [42_121.0]);
}

#[test]
fn state_lasts_from_tick_to_tick_under_all_its_names() {
    for (write, read) in [("WRstate", "RDstate"), ("WRState", "RDState"), ("wr_state", "rd_state")]
    {
        let policy = mantle(&format!("print({read}()) {write}({read}() + 1) if false then"));
        let first = decide(&policy, &full_view(), &State::Nothing);
        assert_eq!(first.log[0].text, "0");
        assert_eq!(first.state, State::One(Scalar::Number(1.0)));
        assert_eq!(said(&policy, &full_view(), &first.state), ["1"]);
    }
}

#[test]
fn a_state_may_be_a_flat_table_and_nothing_deeper() {
    let policy =
        mantle("WRstate({3, 4, name = 'x', [true] = 5}) print(RDstate().name) if false then");
    let decision = decide(&policy, &full_view(), &State::Nothing);
    assert_eq!(decision.log[0].text, "x");
    let State::Table(pairs) = &decision.state else { panic!("{decision:?}") };
    assert_eq!(pairs.len(), 4);
    assert_eq!(State::decode(&decision.state.encode()), Ok(decision.state.clone()));
    for bad in ["WRstate({{}})", "WRstate(print)", "WRstate(0/0)", "WRstate(('x'):rep(70000))"] {
        let before = State::One(Scalar::Number(7.0));
        let decision = decide(&mantle(&format!("{bad} if false then")), &full_view(), &before);
        assert_eq!(failed(&decision).line, Some(2), "{bad}: {decision:?}");
        assert_eq!(decision.state, before, "{bad}: a failed tick changes no state");
    }
}

#[test]
fn globals_that_a_policy_changed_are_reset_at_the_next_tick() {
    let spoil = mantle("max = 0 min = nil MDSs = 1 table = nil whoami = 9 if false then");
    assert_eq!(decide(&spoil, &full_view(), &State::Nothing).outcome, DecisionKind::Balanced);
    let probe = mantle("print(max(1, 2), min(1, 2), #MDSs, type(table), whoami) if false then");
    assert_eq!(said(&probe, &full_view(), &State::Nothing), ["2 1 3 table 2"]);
}

#[test]
fn when_and_where_may_be_open_or_closed() {
    for code in [
        "if true then targets[1] = 3",
        "if true then targets[1] = 3 end",
        "if true then\n-- Where policy\ntargets[1] = 3",
        "if true then\n-- Where policy\ntargets[1] = 3 end",
        "targets[1] = 3",
    ] {
        let decision = decide(&mantle(code), &full_view(), &State::Nothing);
        assert_eq!(decision.targets, [3.0, 0.0, 0.0], "{code}");
    }
}

#[test]
fn five_hooks_make_a_policy() {
    let hooks = Hooks {
        metaload: "IWR",
        mdsload: "MDSs[i][\"all\"]",
        when: "if MDSs[whoami][\"load\"] > 1 then",
        where_: "targets[whoami+1] = MDSs[whoami][\"load\"]/2",
        howmuch: "{\"half\"}",
    };
    let policy = BalancerPolicy::from_hooks("hooks", &hooks).unwrap();
    let decision = decide(&policy, &full_view(), &State::Nothing);
    assert_eq!(decision.targets, [0.0, 0.0, 6.0]);
    assert_eq!(policy.dialect(), Dialect::Mantle);
}

#[test]
fn a_script_of_ceph_runs_unmodified() {
    let script = include_str!("../../../testdata/ceph_spill.lua");
    let policy = BalancerPolicy::parse("spill", script).unwrap();
    assert_eq!(policy.dialect(), Dialect::Ceph);
    let decision = decide(&policy, &view(0, &[100.0, 0.0, 0.0]), &State::Nothing);
    assert_eq!(decision.targets, [0.0, 50.0, 0.0]);
    assert_eq!(decision.loads, [100.0, 0.0, 0.0]);
    // Scaled by 0.8, as Ceph does, and a write counts 2: two directories of 25 reach 40.
    assert_eq!(decision.exports.len(), 2);
    assert_eq!(decision.log[0].level, 5);
    let words = "rank 0: auth.meta_load=100 all.meta_load=100 req_rate=0 queue_len=0 \
                 cpu_load_avg=0 load=100";
    assert!(decision.log.iter().any(|line| line.text == words), "{:?}", decision.log);
    let last = decide(&policy, &view(2, &[0.0, 0.0, 100.0]), &State::Nothing);
    assert_eq!(last.outcome, DecisionKind::Balanced);
    assert_eq!(last.log[3].text, "nobody behind me");
}

#[test]
fn a_result_of_ceph_must_be_one_number_for_each_rank() {
    for (script, words) in [
        ("return 1", "returns 1, not a table"),
        ("return", "returns nil, not a table"),
        ("return {}", "returns 0 targets for 3 ranks"),
        ("return {[0]=0, 0, 0, 0}", "returns 4 targets for 3 ranks"),
        ("return {0, 0, 0}", "a target for rank 3, but ranks are 0 to 2"),
        ("return {[0]=0, 'x', 0}", "the target for rank 1 is x"),
        ("return {[0]=0, x=0, [2]=0}", "a target for `x`, which is no rank"),
        ("return {[0]=0, -1, 0}", "the target for rank 1 is -1"),
        ("return {[0]=0, 0/0, 0}", "not a number that is not negative"),
        ("mds = nil return {[0]=0, 1/0, 0}", "the target for rank 1 is inf"),
    ] {
        let policy = BalancerPolicy::parse("test", script).unwrap();
        let decision = decide(&policy, &full_view(), &State::Nothing);
        let fault = failed(&decision);
        assert_eq!(fault.kind, FaultKind::Result, "{script}");
        assert!(fault.message.contains(words), "{script}: {fault}");
    }
    assert!(BalancerPolicy::parse("test", "return {0, 0").is_err());
}
