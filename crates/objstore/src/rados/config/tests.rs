use super::*;

fn parse(rest: &str) -> std::result::Result<Config, String> {
    Config::parse("rados:x", rest).map_err(|error| error.cause)
}

#[test]
fn a_pool_is_enough() {
    let config = parse("//files").unwrap();
    assert_eq!((&*config.pool, &*config.namespace, &*config.user), ("files", "cudele", "admin"));
    assert_eq!((config.conf, config.keyring), (None, None));
    assert_eq!((config.op_timeout_s, config.connect_timeout_s), (30, 10));
}

#[test]
fn every_option_is_understood() {
    let config = parse(
        "//p.1?conf=/etc/a%20b&keyring=/k&id=client.me&namespace=n-1&op_timeout=5\
         &connect_timeout=2&journal_pool=j&data_pool=d&metadata_pool=m",
    );
    let config = config.unwrap();
    assert_eq!(config.conf.as_deref(), Some("/etc/a b"));
    assert_eq!(config.keyring.as_deref(), Some("/k"));
    assert_eq!((&*config.user, &*config.namespace), ("me", "n-1"));
    assert_eq!((config.op_timeout_s, config.connect_timeout_s), (5, 2));
    let pools: Vec<&str> = (0..3).map(|purpose| config.pool_of(purpose)).collect();
    assert_eq!(pools, ["j", "d", "m"]);
    assert_eq!(parse("//p?data_pool=d").unwrap().pool_of(0), "p");
}

#[test]
fn an_invalid_address_is_refused_with_its_cause() {
    let refused = [
        ("p", "no `//` behind rados:"),
        ("//", "the address of the store names no pool"),
        ("//a/b", "the address of the store names no pool"),
        ("//p%2", "the address of the store names no pool"),
        ("//p?conf", "option \"conf\" has no value"),
        ("//p?conf=", "option conf has no value"),
        ("//p?conf=ceph.conf", "conf: the path must begin with `/`"),
        ("//p?id=a&id=b", "option id is given twice"),
        ("//p?op_timeout=0", "op_timeout: not a number of seconds from 1 on"),
        ("//p?namespace=a/b", "namespace: not a name"),
        ("//p?size=3", "unknown option size"),
    ];
    for (rest, cause) in refused {
        assert_eq!(parse(rest).unwrap_err(), cause, "{rest}");
    }
}
