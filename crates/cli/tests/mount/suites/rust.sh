# Rust programs are built inside by cargo, and run there: a library with its tests, and a program that
# uses it; nothing is built again, and what was changed is.
mkdir -p "$1/numbers/src" "$1/tool/src"
cat >"$1/Cargo.toml" <<'END'
[workspace]
members = ["numbers", "tool"]
resolver = "2"
END
cat >"$1/numbers/Cargo.toml" <<'END'
[package]
name = "numbers"
version = "0.1.0"
edition = "2021"
END
cat >"$1/numbers/src/lib.rs" <<'END'
//! Sums.
pub mod sums;
END
cat >"$1/numbers/src/sums.rs" <<'END'
//! Sums.
/// The sum of the first numbers.
///
/// ```
/// assert_eq!(numbers::sums::up_to(4), 10);
/// ```
pub fn up_to(last: u64) -> u64 {
    (1..=last).sum()
}
#[test]
fn a_sum_is_what_gauss_said() {
    assert_eq!(up_to(100), 5050);
}
END
cat >"$1/tool/Cargo.toml" <<'END'
[package]
name = "tool"
version = "0.1.0"
edition = "2021"
[dependencies]
numbers = { path = "../numbers" }
END
cat >"$1/tool/src/main.rs" <<'END'
fn main() {
    // Empty braces would be the directory of the job.
    let sum = numbers::sums::up_to(1000);
    println!("{sum}");
}
END
cd "$1"
export CARGO_TARGET_DIR="$1/target" CARGO_INCREMENTAL=1
cargo build --offline --quiet
test "$(target/debug/tool)" = 500500
cargo test --offline --quiet
cargo build --offline --release --quiet
test "$(target/release/tool)" = 500500
cargo build --offline -v 2>&1 | grep -q "Fresh tool"
sed -i 's/1000/10/' tool/src/main.rs
cargo build --offline -v 2>&1 | grep -q "Dirty tool"
test "$(target/debug/tool)" = 55
find target -type f | wc -l
