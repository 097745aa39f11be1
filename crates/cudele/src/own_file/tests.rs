use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

#[test]
fn nothing_is_written_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (target, planted) = (dir.path().join("target"), dir.path().join("planted"));
    fs::write(&target, "precious").unwrap();
    symlink(&target, &planted).unwrap();
    for refused in [create(&planted), append(&planted), open_existing(&planted)] {
        let code = refused.unwrap_err().raw_os_error();
        assert_eq!(code, Some(rustix::io::Errno::LOOP.raw_os_error()));
    }
    fs::remove_file(&planted).unwrap();
    fs::hard_link(&target, &planted).unwrap();
    assert!(create(&planted).unwrap_err().to_string().contains("another name"));
    assert_eq!(fs::read(&target).unwrap(), b"precious");
    fs::remove_file(&planted).unwrap();
    create(&planted).unwrap().write_all(b"long").unwrap();
    create(&planted).unwrap().write_all(b"new").unwrap();
    append(&planted).unwrap().write_all(b"er").unwrap();
    assert_eq!(fs::read(&planted).unwrap(), b"newer");
}

#[test]
fn a_pipe_in_place_of_a_file_does_not_block() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(create(&pipe).is_err());
    let folder = Folder::make(dir.path().parent().unwrap(), &name(dir.path())).unwrap();
    assert!(folder.append("pipe").is_err());
}

#[test]
fn a_folder_is_this_users_and_no_link() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    fs::write(&target, "precious").unwrap();
    let folder = Folder::make(dir.path(), "log").unwrap();
    symlink(&target, dir.path().join("log/a")).unwrap();
    assert_eq!(folder.append("a").unwrap_err().errno, Errno::Loop);
    folder.append("b").unwrap().write_all(b"x").unwrap();
    assert_eq!(fs::read(dir.path().join("log/b")).unwrap(), b"x");
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(dir.path().join("log"), open).unwrap();
    let refused = Folder::make(dir.path(), "log").unwrap_err();
    assert_eq!(refused.errno, Errno::Access);
    assert!(refused.remedy.contains("chmod o-w"), "{refused}");
    fs::create_dir(dir.path().join("elsewhere")).unwrap();
    symlink(dir.path().join("elsewhere"), dir.path().join("linked")).unwrap();
    assert!(Folder::make(dir.path(), "linked").is_err());
    assert_eq!(fs::read(&target).unwrap(), b"precious");
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}
