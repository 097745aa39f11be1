//! A SeaweedFS beside us: its servers in one process on loopback, with their files on the same
//! disk, mounted through FUSE by the same program (`scripts/peers install`).

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use cudele::{Errno, Error, Result};

use super::mounted::{Fuse, Server};

/// The program serves gRPC at each port plus this.
const GRPC: u16 = 10_000;

fn failed(cause: impl Into<String>) -> Error {
    Error::new(Errno::Io, "seaweedfs", cause.into())
        .remedy("get it with `scripts/peers install`, or leave out --seaweedfs")
}

/// A port that is free now, as the one for gRPC is.
fn port() -> Result<u16> {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    for _ in 0..64 {
        let listener = free(0).map_err(|error| failed(error.to_string()))?;
        let port = listener.local_addr().map_err(|error| failed(error.to_string()))?.port();
        if port.checked_add(GRPC).is_some_and(|grpc| free(grpc).is_ok()) {
            return Ok(port);
        }
    }
    Err(failed("no two ports are free"))
}

/// Starts the servers with their files below a directory, and mounts. Dropping the result ends the
/// servers and removes the files.
pub(crate) fn mount(program: &Path, parent: &Path) -> Result<Fuse> {
    let home = tempfile::tempdir_in(parent).map_err(|error| failed(error.to_string()))?;
    let [data, at, cache] = ["data", "mount", "cache"].map(|name| home.path().join(name));
    for dir in [&data, &at, &cache] {
        std::fs::create_dir(dir).map_err(|error| failed(error.to_string()))?;
    }
    let (master, volume, filer) = (port()?, port()?, port()?);
    let mut server = Command::new(program);
    server.arg("server").arg(format!("-dir={}", data.display()));
    server.args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-volume.max=64"]);
    server.arg("-master.volumeSizeLimitMB=256");
    server.args([
        format!("-master.port={master}"),
        format!("-volume.port={volume}"),
        format!("-filer.port={filer}"),
    ]);
    server.env("HOME", home.path()).current_dir(home.path());
    let serves = |port: u16| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
    let ready = || [volume, filer, filer + GRPC].into_iter().all(serves);
    let server = Server::start(&mut server, ready)?;
    let mut mount = Command::new(program);
    mount.arg("mount").arg(format!("-filer=127.0.0.1:{filer}"));
    mount.arg(format!("-dir={}", at.display())).arg(format!("-cacheDir={}", cache.display()));
    mount.env("HOME", home.path()).current_dir(home.path());
    Ok(Fuse::start(&mut mount, at, home)?.on(Some(server)))
}
