use std::sync::Arc;

use crate::{HttpAddress, HttpRequest, HttpResponse, HttpServer, HttpStatus, Site, exchange};

/// Says what the request was.
struct Echo;

impl Site for Echo {
    fn answer(&self, request: &HttpRequest<'_>) -> HttpResponse {
        let (key, fields) = (request.parameter("key"), request.fields("x-a").count());
        let text = format!("{} {:?} key {key:?}, {fields} fields", request.path, request.query);
        let evil = "a\r\nb: c".to_owned();
        HttpResponse::text(HttpStatus::Found, &text).with("X-Evil", evil).with("X-Good", "d".into())
    }
}

fn serve(address: &HttpAddress) -> types::Result<HttpServer> {
    HttpServer::start("--web", address, Arc::new(Echo))
}

fn ask(server: &HttpServer, request: &str) -> String {
    String::from_utf8(exchange(server.address(), request).unwrap()).unwrap()
}

#[test]
fn a_site_gets_path_query_and_fields() {
    let server = serve(&HttpAddress::port(0)).unwrap();
    let request = "GET /a?x=1&key=k%20 HTTP/1.1\r\nX-A: 1\r\nx-a: 2\r\n\r\n";
    let answer = ask(&server, request);
    let body = "/a \"x=1&key=k%20\" key Some(\"k%20\"), 2 fields\n";
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(body), "{answer}");
    assert!(answer.contains("X-Good: d\r\n") && !answer.contains("b: c"), "{answer}");
    let none = ask(&server, "GET / HTTP/1.1\r\n\r\n");
    assert!(none.ends_with("/ \"\" key None, 0 fields\n"), "{none}");
}

#[test]
fn other_requests_are_refused() {
    let server = serve(&HttpAddress::port(0)).unwrap();
    assert!(ask(&server, "POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(ask(&server, "\x16\x03\x01\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let head = ask(&server, "HEAD / HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(9000));
    assert!(ask(&server, &long).starts_with("HTTP/1.1 431 "));
}

#[test]
fn a_socket_is_used_again_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let address: HttpAddress = format!("unix:{}", path.display()).parse().unwrap();
    let server = serve(&address).unwrap();
    let second = serve(&address).unwrap_err();
    assert_eq!(second.errno, types::Errno::AddressInUse);
    let answer = ask(&server, "GET /healthz HTTP/1.0\r\n\r\n");
    assert!(answer.contains("/healthz"), "{answer}");
    drop(server);
    assert!(!path.exists());
}

#[test]
fn addresses_are_on_loopback_unless_a_host_is_named() {
    let parsed = |text: &str| text.parse::<HttpAddress>().map(|it| it.to_string());
    assert_eq!(parsed("9123").unwrap(), "http://127.0.0.1:9123");
    assert_eq!(parsed(":9123").unwrap(), "http://127.0.0.1:9123");
    assert_eq!(parsed("[::1]:9").unwrap(), "http://[::1]:9");
    assert_eq!(parsed("unix:/a b").unwrap(), "unix:/a b");
    for wrong in ["", "unix:", "host", "host:", "1:70000"] {
        assert!(parsed(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn an_address_is_local_if_no_other_host_reaches_it() {
    let is_local = |text: &str| text.parse::<HttpAddress>().unwrap().is_local();
    for local in ["80", "localhost:80", "127.1.2.3:80", "[::1]:80", "unix:/a"] {
        assert!(is_local(local), "{local}");
    }
    for open in ["0.0.0.0:80", "[::]:80", "example.org:80", "10.1.2.3:80"] {
        assert!(!is_local(open), "{open}");
    }
    assert_eq!(HttpAddress::port(80).page("/metrics"), "http://127.0.0.1:80/metrics");
}
