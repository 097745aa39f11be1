//! Every check bites: one planted fault each, and the same tree without it.

use super::*;

const MANIFEST: &str = "[package]\nname = \"NAME\"\n[lints]\nworkspace = true\n[dependencies]\n";

/// A crate's manifest with some lines under `[dependencies]`.
fn manifest(name: &str, dependencies: &str) -> String {
    MANIFEST.replace("NAME", name) + dependencies
}

/// The findings of one check about one file.
fn faults(check: Check, path: &str, text: &str) -> Vec<String> {
    check(&Tree::of(&[(path, text)])).iter().map(ToString::to_string).collect()
}

#[track_caller]
fn clean(check: Check, path: &str, text: &str) {
    assert_eq!(faults(check, path, text), [""; 0], "{path}: {text}");
}

#[track_caller]
fn caught(check: Check, path: &str, text: &str, expected: &str) {
    let found = faults(check, path, text);
    assert!(found.len() == 1 && found[0].contains(expected), "{path}: {text}: {found:?}");
}

#[test]
fn the_repository_is_tidy() {
    let tree = Tree::load(&crate::root()).expect("the repository can be read");
    let found: Vec<String> = findings(&tree).iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn a_finding_reads_as_place_fault_and_remedy() {
    let finding = Finding::new("crates/x/src/y.rs", 12, "too long", "split it");
    assert_eq!(finding.to_string(), "tidy: crates/x/src/y.rs:12: too long; split it");
    let finding = Finding::new("a.bin", 0, "too big", "remove it");
    assert_eq!(finding.to_string(), "tidy: a.bin: too big; remove it");
}

mod layers {
    use super::*;
    use crate::tidy::layers::check;

    fn verdict(user: &str, dependencies: &str) -> Vec<String> {
        let path = format!("{}/Cargo.toml", crate::tree::folder_of(user));
        faults(check, &path, &manifest(user, dependencies))
    }

    #[track_caller]
    fn may(user: &str, dependencies: &str) {
        assert_eq!(verdict(user, dependencies), [""; 0], "{user}: {dependencies}");
    }

    #[track_caller]
    fn may_not(user: &str, dependencies: &str, used: &str) {
        let found = verdict(user, dependencies);
        let expected = format!("`{user}` must not depend on `{used}`");
        assert!(found.len() == 1 && found[0].contains(&expected), "{found:?}");
    }

    #[test]
    fn modules_of_lab_point_down() {
        let used = "use crate::worker::rocks;\n";
        clean(check, "crates/lab/src/bench/insert.rs", used);
        caught(check, "crates/lab/src/harness/crew.rs", used, "`harness` must not name `worker`");
        caught(check, "crates/lab/src/worker.rs", "use crate::bench::fuse;\n", "name `bench`");
    }

    #[test]
    fn dependencies_point_up() {
        may("mds", "namespace.workspace = true\nmetastore.workspace = true\n");
        may_not("namespace", "mds.workspace = true\n", "mds");
        may_not("types", "policy = { path = \"../policy\" }\n", "policy");
    }

    #[test]
    fn crates_in_one_row_do_not_know_each_other() {
        may_not("wire", "metastore.workspace = true\n", "metastore");
        may_not("client", "mds.workspace = true\n", "mds");
        may_not("sim", "daemon.workspace = true\n", "daemon");
    }

    #[test]
    fn the_stores_and_sockets_know_formats_and_not_servers() {
        may("net", "metastore.workspace = true\nrustix.workspace = true\n");
        may_not("net", "namespace.workspace = true\n", "namespace");
        may_not("objstore", "mds.workspace = true\n", "mds");
        may("daemon", "mds.workspace = true\nobjstore.workspace = true\n");
    }

    #[test]
    fn a_store_of_bytes_knows_no_format_and_the_engine_no_server() {
        may("objstore", "types.workspace = true\nrustix.workspace = true\n");
        may("objstore", "[dev-dependencies]\ntestceph.workspace = true\n");
        may_not("objstore", "metastore.workspace = true\n", "metastore");
        may("engine", "metastore.workspace = true\nobjstore.workspace = true\n");
        may_not("engine", "wire.workspace = true\n", "wire");
        may_not("engine", "mds.workspace = true\n", "mds");
    }

    #[test]
    fn the_core_takes_few_libraries() {
        may("journal", "crc32c.workspace = true\nthiserror.workspace = true\n");
        may_not("mds", "rustix.workspace = true\n", "rustix");
        may("policy", "serde.workspace = true\n");
        may_not("wire", "serde.workspace = true\n", "serde");
        may("wire", "[dev-dependencies]\nproptest.workspace = true\n");
        may_not("wire", "proptest.workspace = true\n", "proptest");
    }

    #[test]
    fn a_crate_may_be_tested_against_the_model_and_not_built_on_it() {
        may("namespace", "[dev-dependencies]\nmodel.workspace = true\n");
        may_not("namespace", "model.workspace = true\n", "model");
    }

    #[test]
    fn no_kind_of_dependency_is_overlooked() {
        may_not("wire", "[dev-dependencies]\nmds.workspace = true\n", "mds");
        may_not("wire", "[build-dependencies]\nmds.workspace = true\n", "mds");
        may_not("wire", "[target.'cfg(unix)'.dependencies]\nmds.workspace = true\n", "mds");
        may_not("wire", "[dependencies.mds]\nworkspace = true\n", "mds");
        may_not("wire", "harmless = { package = \"mds\", version = \"1\" }\n", "mds");
    }

    #[test]
    fn the_line_of_the_dependency_is_named() {
        let found = verdict("wire", "types.workspace = true\nmds.workspace = true\n");
        assert!(found[0].starts_with("tidy: crates/wire/Cargo.toml:7: "), "{found:?}");
    }

    #[test]
    fn a_crate_without_a_row_or_with_lints_of_its_own_is_reported() {
        assert!(verdict("novel", "")[0].contains("`novel` has no row"));
        let own = "[package]\nname = \"wire\"\n[lints.rust]\nunsafe_code = \"allow\"\n";
        caught(check, "crates/wire/Cargo.toml", own, "does not take the workspace's lints");
        caught(check, "crates/wire/Cargo.toml", &manifest("wired", ""), "another name");
        caught(check, "crates/wire/Cargo.toml", "[", "cannot be parsed");
    }
}

mod contained {
    use super::*;
    use crate::tidy::contained::check;

    /// The findings about a workspace of packages with these dependencies.
    fn found(packages: &[(&str, &str)], workspace: &str) -> Vec<String> {
        let mut files = vec![("Cargo.toml".to_owned(), workspace.to_owned())];
        let package = |(name, uses): &(&str, &str)| {
            (format!("crates/{name}/Cargo.toml"), manifest(name, uses))
        };
        files.extend(packages.iter().map(package));
        let files: Vec<_> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        check(&Tree::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_server_in_a_library_of_another_language_is_found_however_far_away() {
        let calls = ("calls", "cudele.workspace = true\n");
        let clean = [("capi", "calls.workspace = true\n"), calls, ("cudele", "")];
        assert_eq!(found(&clean, ""), [""; 0]);
        let planted = [clean[0], calls, ("cudele", "mds.workspace = true\n")];
        let said = found(&planted, "");
        assert!(
            said.len() == 1 && said[0].starts_with("tidy: crates/capi/Cargo.toml: "),
            "{said:?}"
        );
        assert!(said[0].contains("metadata server: capi -> calls -> cudele -> mds"), "{said:?}");
    }

    #[test]
    fn a_script_engine_is_found_under_another_name_too() {
        let uses = [("pyapi", "luau.workspace = true\n")];
        let named = "[workspace.dependencies]\nluau = { version = \"1\", package = \"mlua\" }\n";
        assert_eq!(found(&uses, ""), [""; 0]);
        assert!(found(&uses, named)[0].contains("pyapi -> mlua"));
    }

    #[test]
    fn tests_and_programs_may_use_servers() {
        let tested = ("capi", "[dev-dependencies]\nmds.workspace = true\n");
        assert_eq!(found(&[tested, ("cli", "mds.workspace = true\n")], ""), [""; 0]);
    }

    #[test]
    fn a_circle_of_manifests_ends_the_search() {
        let circle = [("capi", "calls.workspace = true\n"), ("calls", "capi.workspace = true\n")];
        assert_eq!(found(&circle, ""), [""; 0]);
    }
}

mod edges {
    use super::*;
    use crate::tidy::edges::check;

    const EDGE: &str = "#![allow(clippy::disallowed_methods, reason = \"I/O edge: sockets\")]\n";

    #[test]
    fn only_listed_crates_may_opt_out() {
        clean(check, "crates/net/src/lib.rs", EDGE);
        caught(check, "crates/mds/src/lib.rs", EDGE, "not an I/O edge");
        caught(check, "crates/mds/src/log.rs", &EDGE.replace('!', ""), "not an I/O edge");
    }

    #[test]
    fn a_test_may_opt_out_by_the_function_and_not_by_the_module() {
        let golden = "#[allow(clippy::disallowed_methods, reason = \"golden files are files\")]";
        clean(check, "crates/wire/src/tests.rs", golden);
        caught(check, "crates/wire/src/tests.rs", EDGE, "not an I/O edge");
    }

    #[test]
    fn the_simulator_may_not_but_its_program_may() {
        caught(check, "crates/sim/src/lib.rs", EDGE, "not an I/O edge");
        clean(check, "crates/sim/src/bin/sim.rs", EDGE);
    }

    #[test]
    fn a_program_that_measures_may_look_at_the_clock() {
        clean(
            check,
            "crates/metastore/format/examples/a.rs",
            &EDGE.replace("I/O edge: sockets", "it measures"),
        );
        clean(crate::tidy::purity::check, "crates/metastore/format/benches/a.rs", "Instant::now()");
    }

    #[test]
    fn an_opt_out_in_a_string_or_comment_is_none() {
        clean(check, "crates/mds/src/lib.rs", &format!("// {EDGE}"));
        clean(check, "crates/mds/src/lib.rs", &format!("const A: &str = r##\"{EDGE}\"##;"));
    }

    #[test]
    fn the_reason_is_greppable() {
        let vague = EDGE.replace("I/O edge: ", "needs ");
        caught(check, "crates/net/src/lib.rs", &vague, "does not begin with `I/O edge: `");
    }

    #[test]
    fn silencing_everything_is_refused_at_the_edge_too() {
        let all = "#![allow(clippy::all, reason = \"I/O edge: all\")]\n";
        caught(check, "crates/net/src/lib.rs", all, "`clippy::all` is silenced");
    }
}

mod purity {
    use super::*;
    use crate::tidy::purity::check;

    #[test]
    fn the_core_names_no_clock_file_thread_or_variable() {
        for code in [
            "use std::fs;",
            "use std::{collections::BTreeMap, fs::File};",
            "use std::{\n    fmt,\n    thread::{self, Builder},\n};",
            "fn f() { std::env::var(\"A\"); }",
            "fn f(now: std::time::Instant) {}",
            "async fn f() {}",
        ] {
            caught(check, "crates/mds/src/log.rs", code, "is not for this crate");
            clean(check, "crates/daemon/src/log.rs", code);
        }
    }

    #[test]
    fn plain_data_of_the_same_modules_is_welcome() {
        let code = "use std::net::SocketAddr;\nuse std::time::Duration;\n// std::fs\nenv!(\"A\");";
        clean(check, "crates/mon/src/lib.rs", code);
    }

    #[test]
    fn the_simulator_is_as_pure_as_the_core() {
        let code = "use std::time::Instant;";
        caught(check, "crates/sim/src/lib.rs", code, "`Instant`");
        clean(check, "crates/sim/src/bin/sim.rs", code);
    }

    #[test]
    fn a_test_may_read_golden_files_and_not_the_clock() {
        clean(check, "crates/wire/src/tests.rs", "std::fs::read(path);");
        caught(check, "crates/wire/src/tests.rs", "Instant::now();", "`Instant`");
        caught(check, "crates/wire/src/tests.rs", "std::thread::sleep(a);", "`std::thread`");
    }

    #[test]
    fn randomly_seeded_maps_are_refused_at_the_edge_too() {
        let code = "use std::collections::{BTreeMap, HashMap};";
        caught(check, "crates/daemon/src/lib.rs", code, "`std::collections::HashMap`");
    }

    #[test]
    fn the_line_survives_the_expansion_of_braces() {
        let code = "use std::{\n    fmt,\n    fs,\n};\n";
        caught(check, "crates/mds/src/log.rs", code, "log.rs:3: `std::fs`");
        let later = "use std::{\n    fmt,\n};\n\nfn f() {\n    std::env::args();\n}\n";
        caught(check, "crates/mds/src/log.rs", later, "log.rs:6: `std::env`");
    }
}

mod sizes {
    use super::*;
    use crate::tidy::sizes::check;

    fn with_ratchet(lines: usize, list: &str) -> Vec<String> {
        let text = "x\n".repeat(lines);
        let tree = Tree::of(&[("crates/a/src/b.rs", &text), ("xtask/ratchet.txt", list)]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_of_501_lines_is_too_long_and_its_tests_do_not_count() {
        clean(check, "crates/a/src/b.rs", &"x\n".repeat(500));
        caught(check, "crates/a/src/b.rs", &"x\n".repeat(501), "501 lines without tests");
        clean(check, "crates/a/src/b/tests.rs", &"x\n".repeat(2000));
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    x\n".repeat(600));
        clean(check, "crates/a/src/b.rs", &("x\n".repeat(499) + &tests));
    }

    #[test]
    fn a_listed_file_may_keep_its_length_and_not_grow() {
        let list = "# heading\ncrates/a/src/b.rs 600\n";
        assert_eq!(with_ratchet(600, list), [""; 0]);
        assert!(with_ratchet(601, list)[0].contains("601 lines without tests, more than the 600"));
    }

    #[test]
    fn an_entry_is_lowered_when_its_file_shrinks() {
        let list = "crates/a/src/b.rs 600\n";
        let found = with_ratchet(550, list);
        assert!(found[0].starts_with("tidy: xtask/ratchet.txt:1: "), "{found:?}");
        assert!(found[0].ends_with("lower the entry to 550"), "{found:?}");
        assert!(with_ratchet(400, list)[0].ends_with("remove the entry"));
    }

    #[test]
    fn entries_without_a_file_or_a_number_are_reported() {
        let list = "crates/a/src/gone.rs 600\n";
        assert!(with_ratchet(1, list)[0].contains("crates/a/src/gone.rs does not exist"));
        assert!(with_ratchet(1, "nonsense\n")[0].contains("not an entry"));
    }
}

mod headers {
    use super::*;
    use crate::tidy::headers::check;

    #[test]
    fn a_module_says_what_it_is_for() {
        clean(check, "crates/a/src/lib.rs", "//! What a is for.\n");
        caught(check, "crates/a/src/lib.rs", "mod b;\n", "lib.rs:1: does not open");
        let root = ("crates/a/src/lib.rs", "//! A.\n");
        let found = check(&Tree::of(&[root, ("crates/a/src/b/c.rs", "fn f() {}\n")]));
        assert_eq!(found.len(), 1);
        assert!(check(&Tree::of(&[root, ("crates/a/src/b/tests.rs", "use a;\n")])).is_empty());
    }

    #[test]
    fn a_crate_has_a_root() {
        caught(check, "crates/a/Cargo.toml", "", "neither src/lib.rs nor src/main.rs");
        clean(check, "xtask/src/main.rs", "//! Chores.\n");
    }
}

mod allows {
    use super::*;
    use crate::tidy::allows::check;

    #[test]
    fn a_silenced_lint_needs_a_reason() {
        clean(check, "a.rs", "#[allow(dead_code, reason = \"the C header uses it\")]\nfn f() {}");
        caught(check, "a.rs", "\n#[allow(dead_code)]\nfn f() {}", "a.rs:2: ");
        caught(check, "a.rs", "#![allow(\n    dead_code\n)]\n", "without a reason");
        caught(check, "a.rs", "#[expect(dead_code)]\nfn f() {}", "without a reason");
        caught(check, "a.rs", "#[cfg_attr(test, allow(dead_code))]\nfn f() {}", "a reason");
    }

    #[test]
    fn other_attributes_and_strings_are_none() {
        clean(check, "a.rs", "#[derive(Debug)]\nstruct S;\nconst A: &str = \"#[allow(x)]\";");
        clean(check, "a.rs", "#[should_panic(expected = \"allow(x)\")]\nfn f() {}");
    }
}

mod walkthrough {
    use super::*;
    use crate::tidy::walkthrough::check;

    const HEAD: &str = "| hop | file | item | what happens |\n|---|---|---|---|\n";

    /// The findings about a walkthrough with one row, beside a crate with one function.
    fn hop(row: &str) -> Vec<String> {
        let document = format!("{HEAD}{row}\n");
        let tree = Tree::of(&[
            ("docs/walkthrough/create.md", &document),
            ("crates/mds/src/op/create.rs", "pub fn create() {}\nfn plan_create() {}"),
            ("crates/mds/src/lib.rs", "pub enum Input { Request }"),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_hop_that_exists_is_accepted_however_it_is_written() {
        for row in [
            "| 1 | mds/src/op/create.rs | `create` | it decides |",
            "| 1 | `crates/mds/src/op/create.rs` | `create()`, `self.plan_create(…)` | it decides |",
            "| 1 | mds/src/op/create.rs, mds/src/lib.rs | `create`, `Input` | both |",
            "| 1 | mds/src/lib.rs | `crate::Input` | |",
        ] {
            assert_eq!(hop(row), [""; 0], "{row}");
        }
    }

    #[test]
    fn a_renamed_file_or_item_breaks_its_walkthrough() {
        let gone = hop("| 1 | mds/src/op/make.rs | `create` | it decides |");
        assert!(gone[0].contains("create.md:3: there is no file mds/src/op/make.rs"), "{gone:?}");
        let gone = hop("| 1 | mds/src/op/create.rs | `create`, `Mds::plan` | it decides |");
        assert!(gone.len() == 1 && gone[0].contains("no function or type `Mds::plan`"), "{gone:?}");
        let called = hop("| 1 | mds/src/lib.rs | `Request` | a variant is no type |");
        assert_eq!(called.len(), 1, "{called:?}");
    }

    #[test]
    fn prose_that_names_a_function_in_a_file_is_held_to_it() {
        assert_eq!(hop("\n`create` in\n`crates/mds/src/op/create.rs` decides."), [""; 0]);
        let gone = hop("\nThen `make` in\n`crates/mds/src/op/create.rs` decides.");
        assert!(gone.len() == 1 && gone[0].contains("create.md:4: no function"), "{gone:?}");
    }

    #[test]
    fn a_table_without_the_two_columns_is_left_alone() {
        let text = "| name | meaning |\n|---|---|\n| gone.rs | `nothing` |\n";
        clean(check, "docs/walkthrough/create.md", text);
    }
}

mod docs {
    use super::*;
    use crate::tidy::docs::check;

    #[test]
    fn paths_lead_somewhere() {
        let readme = |text: &str| {
            let tree = Tree::of(&[("README.md", text), ("docs/formats/journal.md", "")]);
            check(&tree).len()
        };
        assert_eq!(readme("`docs/formats/` `crates/<name>/src`"), 0);
        assert_eq!(readme("see `docs/formats/{journal,wire}.md`"), 1);
        assert_eq!(readme("```\n`crates/gone`\n```\n"), 0);
    }
}

mod links {
    use super::*;
    use crate::tidy::links::check;

    /// The findings about a page beside another one.
    fn said(page: &str) -> Vec<String> {
        let other = "# A page\n## It's `so_far`, all\n## Twice\n## Twice\n```\n# No\n```\n";
        let tree = Tree::of(&[("docs/a/b.md", page), ("docs/c.md", other), ("d.rs", "")]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_link_leads_to_a_file_and_a_heading() {
        for page in [
            "[c](../c.md) [d](../../d.rs) [all](../../docs)",
            "[c](../c.md#its-so_far-all) and [c](../c.md#twice-1)",
            "# Up\n[up](#up) [far](https://example.org/x#y) `[a](gone.md)`",
            "```\n[a](gone.md)\n```\n",
        ] {
            assert_eq!(said(page), [""; 0], "{page}");
        }
    }

    #[test]
    fn the_book_has_every_page() {
        let contents = ("docs/SUMMARY.md", "- [A](a/b.md)");
        let tree = Tree::of(&[contents, ("docs/a/b.md", ""), ("docs/decisions/0001-a.md", "")]);
        assert_eq!(check(&tree), []);
        let found = check(&Tree::of(&[contents, ("docs/a/b.md", ""), ("docs/c.md", "")]));
        assert!(found.len() == 1 && found[0].to_string().contains("docs/c.md: not in the book"));
    }

    #[test]
    fn a_link_to_a_file_or_heading_that_is_gone_is_found() {
        let gone = said("\n[c](c.md)");
        assert!(gone.len() == 1 && gone[0].contains("b.md:2: there is no docs/a/c.md"), "{gone:?}");
        let gone = said("[c](../c.md#no) [up](#up)");
        assert!(gone.len() == 2 && gone[0].contains("docs/c.md has no heading #no"), "{gone:?}");
    }
}

mod promises {
    use super::*;
    use crate::tidy::promises::check;

    /// The findings about a document beside a crate with this source, and one with the document's
    /// own tests.
    fn said(document: &str, elsewhere: &str, own: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("docs/promises/a.md", document),
            ("crates/mds/src/tests.rs", elsewhere),
            ("crates/cli/tests/semantics/merging.rs", own),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_promise_has_a_test_of_its_name_wherever_it_is() {
        let test = "#[test]\n#[ignore = \"slow\"]\nfn the_clients_work_twice_is_once() {}\n";
        let promise = "# A\n| c | [d](#the-clients-work-twice-is-once) |\n\n### The client's work, twice, is once\n";
        assert_eq!(said(promise, test, ""), [""; 0]);
        assert_eq!(said(promise, "", test), [""; 0]);
        for other in ["fn the_clients_work_twice_is_once() {}", "// #[test]\nfn a() {}"] {
            let found = said(promise, other, "");
            assert!(found[0].contains("promises/a.md:4: no test is called the_clients_work"));
        }
        assert_eq!(said("```\n### Not a heading\n```\n", "", ""), [""; 0]);
    }

    #[test]
    fn a_test_of_a_promise_does_not_outlive_it() {
        let test = "#[test]\nfn it_is_kept() {}\n";
        let page = "| c | [d](#it-is-lost) |\n\n### It is lost\n";
        let found = said(page, "#[test]\nfn it_is_lost() {}", test);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("merging.rs:2: it_is_kept is no heading of"), "{found:?}");
        assert_eq!(said("", test, ""), [""; 0], "other tests are free");
    }

    #[test]
    fn a_promise_is_made_once() {
        let page = "| c | [d](#it-is-kept) |\n### It is kept\n### It, is kept.\n";
        let found = said(page, "#[test]\nfn it_is_kept() {}", "");
        assert!(found.len() == 1 && found[0].contains(":3: \"It, is kept.\" has"), "{found:?}");
    }

    #[test]
    fn a_promise_is_in_the_table_of_its_page() {
        let test = "#[test]\nfn it_is_kept() {}";
        let found = said("### It is kept\n", test, "");
        assert!(found.len() == 1 && found[0].contains(":1: \"It is kept\" is not in"), "{found:?}");
    }
}

mod hygiene {
    use super::*;
    use crate::tidy::hygiene::check;

    #[test]
    fn code_of_one_profile_is_caught() {
        let attribute = concat!("#[cfg(not(debug", "_assertions))]\nfn f() {}\n");
        caught(check, "crates/mds/src/x.rs", attribute, "one profile");
        clean(check, "crates/pyapi/src/x.rs", attribute);
        clean(check, "crates/mds/src/x.rs", "if cfg!(debug_assertions) {}\n");
    }

    #[test]
    fn notes_of_unfinished_work_are_found_in_code() {
        for note in [concat!("// TO", "DO: later"), concat!("to", "do!()"), concat!("# XX", "X")] {
            caught(check, "crates/a/src/lib.rs", note, "is left in the code");
            caught(check, "scripts/test", note, "is left in the code");
            clean(check, "docs/style.md", note);
        }
        clean(check, "scripts/test", "mktemp -d /tmp/cudele.XXXXXX");
    }

    #[test]
    fn blanks_at_line_ends_are_found() {
        caught(check, "a.md", "x \n", "a.md:1: blanks");
        caught(check, "a.rs", "x\r\n", "blanks");
        clean(check, "crates/sim/testdata/a.txt", "x \n");
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for path in [concat!("/ro", "ot/.cargo"), concat!("/wo", "rk/x"), concat!("/ho", "me/jdoe")]
        {
            caught(check, "scripts/test", &format!("cd {path}\n"), "directory of one machine");
        }
        clean(check, "scripts/test", "cd $HOME/work/x; ls crates/root/ /home /home/<user>/x\n");
        clean(check, "docs/a.md", "`/home/alice/thesis` is the user's\n");
    }

    #[test]
    fn a_blob_is_found_without_being_read() {
        let mut tree = Tree::of(&[("a.bin", "")]);
        tree.files[0].bytes = 1024 * 1024;
        assert_eq!(check(&tree), []);
        tree.files[0].bytes += 1;
        assert_eq!(check(&tree).len(), 1);
    }
}

mod unique {
    use super::*;
    use crate::tidy::unique::check;

    fn beside_stage(other: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "/// A stage.\npub struct Stage;\n"),
            ("crates/b/src/export.rs", other),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn two_public_types_of_one_name_are_found() {
        for other in [
            "\npub enum Stage {}",
            "\npub trait Stage: Sized {",
            "\n    pub type Stage<T> = X<T>;",
            "\npub unsafe trait Stage {}",
            "\npub struct Stage(u64);",
        ] {
            let found = beside_stage(other);
            assert_eq!(found.len(), 1, "{other}: {found:?}");
            let place = "crates/b/src/export.rs:2: `Stage` is a public type of crates/a/src/lib.rs";
            assert!(found[0].contains(place), "{found:?}");
        }
    }

    #[test]
    fn other_names_and_types_of_one_crate_pass() {
        for other in [
            "pub struct ExportStage;",
            "pub(crate) struct Stage;",
            "// pub struct Stage;",
            "pub struct $name;",
            "pub const Stage: u8 = 0;",
            "    type Stage = u8;",
        ] {
            assert_eq!(beside_stage(other), [""; 0], "{other}");
        }
        let twice = "pub struct A;\n";
        let files = [("crates/a/src/lib.rs", twice), ("crates/b/tests/it/main.rs", twice)];
        assert_eq!(check(&Tree::of(&files)), []);
    }
}

mod words {
    use super::*;
    use crate::tidy::words::check;

    const PLAIN: &str = "//! The server rejects a create in a frozen directory.\n";
    const HEADLESS: &str = "//! Who waits for the journal does not wait for itself.\n";

    fn with_list(source: &str, list: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/x/src/lib.rs", source), ("xtask/words.txt", list)]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn plain_comments_pass_and_others_are_quoted() {
        assert_eq!(with_list(PLAIN, ""), [""; 0]);
        let found = with_list(HEADLESS, "");
        assert!(found[0].contains("100.0 % of the sentences have no noun"), "{found:?}");
        assert!(found[0].contains("crates/x/src/lib.rs:1: Who waits"), "{found:?}");
    }

    #[test]
    fn generated_pages_of_experiments_are_measured() {
        let page = "experiments/x/README.md";
        let tree = Tree::of(&[(page, "Who waits for the journal does not wait for itself.\n")]);
        let found = check(&tree);
        assert!(found[0].to_string().contains("experiments/x/README.md:1: Who waits"), "{found:?}");
    }

    #[test]
    fn the_list_excuses_and_only_shrinks() {
        assert_eq!(with_list(HEADLESS, "# why\ncrates/x 100.0 100.0 0.0 0\n"), [""; 0]);
        let found = with_list(HEADLESS, "crates/x 50.0 100.0 0.0 0\n");
        assert!(found[0].contains("crates/x: 100.0 %"), "{found:?}");
        let found = with_list(HEADLESS, "crates/x 100.0 300.0 0.0 0\n");
        assert!(found[0].contains("lower the entry to `crates/x 100.0 100.0 0.0 0`"), "{found:?}");
        let found = with_list(PLAIN, "crates/x 100.0 100.0 0.0 0\n");
        assert!(found[0].contains("remove the entry"), "{found:?}");
        let found = with_list(PLAIN, "crates/y 1.0 1.0 1.0 0\n");
        assert!(found[0].contains("crates/y does not exist"), "{found:?}");
        let found = with_list(PLAIN, "crates/x 1.0\n");
        assert!(found[0].contains("not an entry"), "{found:?}");
    }

    #[test]
    fn pages_count_by_themselves_and_the_changelog_does_not() {
        let page = "Whoever reads this page reads a vague page.\n";
        caught(check, "docs/a.md", page, "docs/a.md: 100.0 %");
        clean(check, "CHANGELOG.md", page);
    }
}
