use cudele::{Attr, AttrChange, Timestamp};

use super::{Body, File};

/// As the server knows it: of this length, changed at this time.
fn attr(size: u64, time: i64) -> Attr {
    let time = Timestamp(time);
    Attr { size, mtime: time, ctime: time, ..Attr::default() }
}

fn length_and_time(attr: Attr) -> (u64, i64) {
    (attr.size, attr.mtime.0)
}

#[test]
fn an_answer_from_before_a_flush_takes_nothing_back() {
    let file = File::new(&attr(10, 1), Body::Striped);
    let mut content = file.held();
    assert_eq!(length_and_time(content.over(attr(12, 2))), (12, 2), "written elsewhere by name");
    content.size = 30;
    content.touch();
    let written = content.written.0;
    assert_eq!(length_and_time(content.over(attr(10, 1))), (30, written));
    // The inode was told, and an answer from before comes only now.
    content.dirty = false;
    assert_eq!(length_and_time(content.over(attr(10, 1))), (30, written));
    // The server's later time holds, even if it is an earlier one.
    let later = Attr { mtime: Timestamp(5), ..attr(30, written + 9) };
    assert_eq!(length_and_time(content.over(later)), (30, 5));
    content.forget_written(&AttrChange { mtime: Some(Timestamp(5)), ..AttrChange::default() });
    assert_eq!(length_and_time(content.over(attr(30, 5))), (30, 5), "set back from here");
}

#[test]
fn the_server_knows_the_length_of_a_shared_file() {
    let file = File::new(&attr(10, 1), Body::Striped);
    let mut content = file.held();
    content.size = 30;
    content.touch();
    content.dirty = false;
    content.share(false);
    assert_eq!(length_and_time(content.over(attr(20, 2))), (20, 2));
    content.last = attr(25, 3);
    content.unshare();
    assert_eq!((content.size, &content.body), (25, &Body::Unread));
    assert_eq!(length_and_time(content.over(attr(40, 4))), (40, 4));
}
