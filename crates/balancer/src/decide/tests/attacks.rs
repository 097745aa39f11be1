//! Hostile policies end with a fault that has a line, and have no other effect on the rank.

use std::cell::Cell;
use std::rc::Rc;

use super::*;

fn fault_of(code: &str) -> Fault {
    let decision = decide(&mantle(code), &view(0, &[100.0, 0.0]), &State::Nothing);
    failed(&decision).clone()
}

fn check(code: &str, kind: FaultKind, line: Option<u32>, words: &str) {
    let fault = fault_of(code);
    assert_eq!((fault.kind, fault.line), (kind, line), "{code}: {fault}");
    assert!(fault.message.contains(words), "{code}: {fault}");
}

#[test]
fn endless_loops_end() {
    for code in [
        "while 1 do end if true then",
        "repeat until false if true then",
        "while true do pcall(function() while true do end end) end if true then",
        "while true do local ok = pcall(error, 'x') end if true then",
        "local function f() pcall(f) pcall(f) end while true do f() end if true then",
        "while true do xpcall(function() while true do end end, function() while true do end end) end if true then",
        "local co = coroutine.wrap(function() while true do coroutine.yield() end end) \
         while true do co() end if true then",
        "while true do local co = coroutine.create(function() while true do end end) \
         coroutine.resume(co) end if true then",
        "table.sort({1, 2, 3, 4, 5, 6, 7, 8, 9}, function() while true do end end) if true then",
        "string.gsub(('x'):rep(1000), '.', function() while true do end end) if true then",
        "for i = 1, 1e18 do end if true then",
        "for i = 1, math.huge do end if true then",
    ] {
        check(code, FaultKind::Steps, Some(2), "300000 steps");
    }
}

#[test]
fn a_budget_that_is_used_up_cannot_be_caught() {
    let code = "pcall(function() while true do end end)\nif true then targets[2] = 50";
    check(code, FaultKind::Steps, Some(2), "steps");
}

/// Scripts that catch every error, in every way that the language has.
const CATCHING: [&str; 16] = [
    "while true do pcall(error) end",
    "while true do xpcall(error, error) end",
    "while true do xpcall(error, function() while true do pcall(error) end end) end",
    "local function f() while true do pcall(f) end end while true do pcall(f) end",
    "local function f() while true do xpcall(f, f) end end f()",
    "while true do coroutine.resume(coroutine.create(function() while true do pcall(error) end end)) end",
    "local function f() while true do pcall(coroutine.wrap(f)) end end f()",
    "while true do pcall(coroutine.wrap(function() pcall(coroutine.yield) error() end)) end",
    "local t = setmetatable({}, {__index = function(t, k) while true do pcall(error) end end}) \
     while true do pcall(function() return t.x end) end",
    "local t = setmetatable({}, {__lt = function() while true do pcall(error) end end}) \
     while true do pcall(table.sort, {t, t, t}) end",
    "while true do pcall(table.sort, {3, 2, 1}, function() while true do pcall(error) end end) end",
    "while true do pcall(string.gsub, ('x'):rep(99), '.', function() pcall(error) end) end",
    "while true do pcall(string.find, ('a'):rep(5000), ('a*'):rep(20) .. 'b') end",
    "while true do pcall(string.rep, 'x', 1e9) end",
    "local t = {} while true do pcall(function() while true do t[#t + 1] = {t} end end) end",
    "local function f() return 1 + f() end while true do pcall(f) end",
];

#[test]
fn a_script_that_catches_every_error_is_over_its_budget() {
    for code in CATCHING {
        let policy = mantle(&format!("{code} if true then"));
        // Fewer steps than a policy has: an error that is caught costs more than another step.
        let policy = policy
            .with_limits(crate::ScriptLimits { steps: 3000, ..crate::ScriptLimits::default() });
        let decision = decide(&policy, &view(0, &[100.0, 0.0]), &State::Nothing);
        assert_eq!(failed(&decision).kind, FaultKind::Steps, "{code}: {decision:?}");
        assert!(decision.steps < 4000, "{code}: {} steps", decision.steps);
    }
}

#[test]
fn one_call_of_a_library_is_bounded_by_the_memory_of_the_script() {
    for code in [
        "pcall(table.move, {}, 1, 2e9, 2)",
        "pcall(table.move, {1}, 1, 2e9, 1, {})",
        "pcall(table.concat, {}, ',', 1, 2e9)",
        "pcall(table.unpack, {}, 1, 2e9)",
        "pcall(table.create, 1e8, 0)",
        "pcall(string.rep, '', 2e9)",
        "pcall(string.rep, 'x', 2e9, 'y')",
        "pcall(string.format, '%99.99f', 1e300)",
        "pcall(string.byte, ('x'):rep(1e6), 1, -1)",
        "pcall(string.split, ('x'):rep(1e6), '')",
        "pcall(utf8.char, 1e9)",
        "pcall(select, -2e9)",
    ] {
        let decision =
            decide(&mantle(&format!("{code} if false then")), &view(0, &[1.0]), &State::Nothing);
        let fault = decision.fault().map(|fault| fault.kind);
        assert!(matches!(fault, None | Some(FaultKind::Memory)), "{code}: {decision:?}");
    }
}

#[test]
fn the_clock_ends_the_hook_for_the_loads_too() {
    let text = "-- Metadata load\nwhile true do pcall(error) end\n-- When policy\nif false then";
    let policy = BalancerPolicy::parse("test", text).unwrap();
    let expired = Expired::when(|| true);
    let fault = policy.metaload(&[crate::Counts::default()], &expired).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Time, "{fault}");
}

#[test]
fn pattern_bombs_end() {
    let code = "local s = ('a'):rep(5000) s:find(('a*'):rep(40) .. 'b') if true then";
    let fault = fault_of(code);
    assert!(matches!(fault.kind, FaultKind::Steps | FaultKind::Script), "{fault}");
    assert_eq!(fault.line, Some(2), "{fault}");
}

#[test]
fn huge_tables_and_texts_end() {
    for code in [
        "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(100) .. i end if true then",
        "local s = 'x' while true do s = s .. s end if true then",
        "local s = ('x'):rep(1e9) if true then",
        "local t = table.create(1e7, 0) if true then",
        "WRstate(('x'):rep(1e8)) if true then",
        "error(('x'):rep(1e8)) if true then",
    ] {
        check(code, FaultKind::Memory, Some(2), "KiB of memory");
    }
}

#[test]
fn deep_recursion_ends() {
    let fault = fault_of("local function f() return 1 + f() end f() if true then");
    assert!(matches!(fault.kind, FaultKind::Script | FaultKind::Memory), "{fault}");
    let nested = format!("local x = {}1{} if true then", "(".repeat(20_000), ")".repeat(20_000));
    let fault = BalancerPolicy::parse("test", &format!("-- When policy\n{nested}")).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Syntax, "{fault}");
    let nested = format!("local x = {}{} if true then", "{".repeat(30_000), "}".repeat(30_000));
    assert!(BalancerPolicy::parse("test", &format!("-- When policy\n{nested}")).is_err());
}

#[test]
fn the_clock_that_is_handed_in_ends_a_policy_too() {
    let looks = Rc::new(Cell::new(0));
    let counted = Rc::clone(&looks);
    let expired = Expired::when(move || {
        counted.set(counted.get() + 1);
        counted.get() > 1000
    });
    let policy = mantle("\nwhile true do pcall(error) end if true then");
    let decision = decide_until(&policy, &view(0, &[1.0, 0.0]), &State::Nothing, &expired);
    let fault = failed(&decision);
    assert_eq!((fault.kind, fault.line), (FaultKind::Time, Some(3)));
    assert_eq!(fault.to_error("policy").errno, types::Errno::TimedOut);
    assert_eq!(looks.get(), 1001);
}

#[test]
fn wrong_results_name_the_line_that_made_them() {
    for (code, words) in [
        ("targets[2] = -1", "the target for rank 2 is -1"),
        ("targets[2] = 0/0", "the target for rank 2 is NaN"),
        ("targets[2] = 1/0", "the target for rank 2 is inf"),
        ("targets[2] = 'x'", "the target for rank 2 is x"),
        ("targets[2] = {}", "the target for rank 2 is table"),
        ("targets[7] = 1", "a target for rank 7, but ranks are 1 to 2"),
        ("targets[0] = 1", "a target for rank 0, but ranks are 1 to 2"),
        ("targets[1.5] = 1", "a target for `1.5`, which is no rank"),
        ("targets.two = 1", "a target for `two`, which is no rank"),
        ("targets = nil", "the targets are nil, not a table"),
    ] {
        check(&format!("if true then\n{code}"), FaultKind::Result, Some(3), words);
    }
    let twice = "if true then\ntargets[2] = 1\ntargets[2] = -1";
    check(twice, FaultKind::Result, Some(3), "`targets` is set in lines 3, 4");
}

#[test]
fn errors_of_scripts_name_their_line_and_are_one_line() {
    check("\nif MDSs[5]['load'] > 1 then", FaultKind::Script, Some(3), "index nil");
    check("if nothing > 1 then", FaultKind::Script, Some(2), "compare");
    check("\n\nerror('mine')\nif true then", FaultKind::Script, Some(4), "mine");
    check("error({}) if true then", FaultKind::Script, Some(2), "");
    check("error() if true then", FaultKind::Script, Some(2), "");
    let fault = fault_of("error('\\27[31mred\\nsecond ' .. ('x'):rep(5000)) if true then");
    assert!(fault.message.chars().count() <= 301, "{fault}");
    assert!(!fault.message.chars().any(char::is_control), "{fault:?}");
}

#[test]
fn hooks_that_give_no_load_are_faults() {
    for (hook, value) in [
        ("Metadata load", "nil"),
        ("Metadata load", "'x'"),
        ("Metadata load", "0/0"),
        ("Metadata load", "-IWR - 1"),
        ("Metadata server load", "nil"),
        ("Metadata server load", "{}"),
        ("Metadata server load", "-1"),
        ("Howmuch policy", "{}"),
        ("Howmuch policy", "7"),
        ("Howmuch policy", "{7}"),
        ("Howmuch policy", "{'most'}"),
    ] {
        let mut text = "-- When policy\nif true then targets[2] = 5\n".to_owned();
        let section = format!("-- {hook}\n{value}\n");
        text = if hook.starts_with('M') { section + &text } else { text + &section };
        let policy = BalancerPolicy::parse("test", &text).unwrap();
        let decision = decide(&policy, &view(0, &[100.0, 0.0]), &State::Nothing);
        assert_eq!(failed(&decision).kind, FaultKind::Result, "{hook} {value}: {decision:?}");
    }
}

#[test]
fn nothing_of_the_machine_can_be_reached() {
    for name in [
        "io",
        "os",
        "require",
        "dofile",
        "loadfile",
        "loadstring",
        "load",
        "package",
        "debug",
        "getfenv",
        "setfenv",
        "collectgarbage",
        "gcinfo",
        "newproxy",
        "math.random",
        "table.move",
        "buffer",
    ] {
        let code = format!("print(type({name})) if false then");
        let decision = decide(&mantle(&code), &view(0, &[1.0, 0.0]), &State::Nothing);
        assert_eq!(decision.log[0].text, "nil", "{name}");
    }
    // The libraries themselves cannot be changed.
    check("string.rep = nil if true then", FaultKind::Script, Some(2), "readonly");
    let escape = "getmetatable('').__index.rep = nil if true then";
    assert_eq!(fault_of(escape).kind, FaultKind::Script);
}

#[test]
fn a_log_is_bounded() {
    let code = "for n = 1, 5000 do BAL_LOG(99, ('x'):rep(10000)) end if false then";
    let decision = decide(&mantle(code), &view(0, &[1.0, 0.0]), &State::Nothing);
    assert_eq!(decision.fault(), None);
    assert_eq!(decision.log.len(), 201);
    assert_eq!(decision.log[0].text.chars().count(), 501);
    assert_eq!(decision.log[0].level, 20);
    assert_eq!(decision.log[200].text, "4800 more lines were dropped");
    let decision =
        decide(&mantle("BAL_LOG(0/0, 'x') if false then"), &view(0, &[1.0, 0.0]), &State::Nothing);
    assert_eq!(decision.log[0].level, 0);
}

#[test]
fn a_syntax_error_names_its_line_in_any_section() {
    for (text, line) in [
        ("-- Metadata load\nIWR +\n-- When policy\nif true then\n", 2),
        ("-- When policy\nif true the\n", 2),
        ("-- When policy\nif true then\n\nx = = 3\n", 4),
        ("-- When policy\nif true then\n-- Where policy\ntargets[1] == 3\n", 4),
        ("-- When policy\nif true then\n-- Howmuch policy\n{\"half\"\n", 4),
        ("x = 1\nreturn {\n", 2),
    ] {
        let fault = BalancerPolicy::parse("test", text).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Syntax, "{text}: {fault}");
        let near = fault.line.is_some_and(|found| found.abs_diff(line) <= 1);
        assert!(near, "{text}: {fault}");
    }
    assert!(BalancerPolicy::parse_bytes("test", b"\xff").is_err());
    assert!(BalancerPolicy::parse_bytes("test", b"\x1bLua").is_err(), "no bytecode");
}
