use super::*;

#[test]
fn the_kernel_keeps_the_work_of_missing_features() {
    let plain = wanted(Features::default());
    let left = init::POSIX_LOCKS
        | init::FLOCK_LOCKS
        | init::DO_READDIRPLUS
        | init::READDIRPLUS_AUTO
        | init::HANDLE_KILLPRIV_V2
        | init::AUTO_INVAL_DATA
        | init::POSIX_ACL
        | init::DONT_MASK;
    assert_eq!(plain & left, 0);
    let features = Features {
        locks: true,
        listed_attributes: true,
        drops_set_id: true,
        shared_content: true,
        maps_uncached: true,
        access_lists: true,
    };
    assert_eq!(wanted(features), plain | left);
}
