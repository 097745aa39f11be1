use super::*;

fn beat() -> Heartbeat {
    let metrics = Metrics {
        auth: 1.5,
        all: 2.0,
        cpu_percent: 48.0,
        mem_percent: 3.0,
        queue: 7.0,
        requests_per_second: 3000.0,
        request_seconds: 0.0003,
        inodes: 1e6,
        age_seconds: 0.0,
    };
    Heartbeat { rank: Rank(3), epoch: Epoch(9), policy: 4, tick: 77, metrics }
}

#[test]
fn a_heartbeat_reads_back() {
    assert_eq!(Heartbeat::decode(&beat().encode()), Ok(beat()));
}

#[test]
fn the_bytes_of_version_1_stay_as_they_are() {
    let bytes = beat().encode();
    assert_eq!(bytes.len(), 1 + 2 + 3 * 8 + 8 * 8 + 4);
    let hex = types::hex::encode(&bytes);
    expect_test::expect!["010300090000000000000004000000000000004d00000000000000000000000000f83f0000000000000040000000000000484000000000000008400000000000001c4000000000"]
        .assert_eq(&hex[..142]);
}

#[test]
fn every_truncation_and_every_flipped_bit_is_detected() {
    let bytes = beat().encode();
    for end in 0..bytes.len() {
        assert!(Heartbeat::decode(&bytes[..end]).is_err(), "{end} bytes");
    }
    for at in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        assert!(Heartbeat::decode(&flipped).is_err(), "bit {at}");
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(Heartbeat::decode(&longer).is_err());
}

#[test]
fn loads_that_are_not_finite_are_refused_despite_a_right_checksum() {
    for wrong in [f64::NAN, f64::INFINITY, -1.0] {
        let mut beat = beat();
        beat.metrics.queue = wrong;
        assert!(Heartbeat::decode(&beat.encode()).is_err(), "{wrong}");
    }
}

#[test]
fn loads_are_the_policys_or_else_all_hits() {
    let counts = Counts { inode_writes: 2.0, inode_reads: 1.0, ..Counts::default() };
    let twice = counts.times(2.0);
    let default = crate::default_policy();
    assert_eq!(loads(&default, &counts, &twice, &Expired::never()), (5.0, 10.0));
    let broken = "-- Metadata load\nIWR + nothing\n-- When policy\nif true then\n";
    let broken = BalancerPolicy::parse("broken", broken).unwrap();
    assert_eq!(loads(&broken, &counts, &twice, &Expired::never()), (3.0, 6.0));
}
