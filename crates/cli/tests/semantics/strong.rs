//! Requests under the default policy, and their visibility to other clients.

use cudele::NewFile;

use crate::fixture::World;
use crate::tools::mount;

#[test]
fn an_answered_change_is_visible_to_all_clients() {
    let world = World::new();
    let clients = [mount(&world), mount(&world)];
    let dirs = clients.each_ref().map(|fs| fs.open_dir("/").unwrap());
    for number in 0..100 {
        let name = format!("f{number}");
        let (mine, yours) = (&dirs[number % 2], &dirs[(number + 1) % 2]);
        let made = mine.create(&name, &NewFile::default()).unwrap().ino;
        assert_eq!(yours.lookup(&name).unwrap().ino, made);
        yours.unlink(&name).unwrap();
        assert!(mine.lookup(&name).is_err());
    }
}
