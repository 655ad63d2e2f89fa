//! The reference: a file server that answers PUT, GET and DELETE and does nothing else. It writes the file of a PUT in
//! pieces of 1 MiB while it receives the next one, syncs it, renames it into place and syncs its directory, which is
//! the work that surviving a power failure requires.

use bytes::{Bytes, BytesMut};
use futures::SinkExt;
use futures::channel::mpsc;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Either, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::spawn_blocking;

const PIECE_BYTES: usize = 1 << 20;

type Pieces = mpsc::Receiver<io::Result<Frame<Bytes>>>;
type Answer = Response<Either<Empty<Bytes>, StreamBody<Pieces>>>;

/// Serves the files below `root` as long as the program runs.
pub fn serve(root: &Path) -> SocketAddr {
    let root = root.to_owned();
    std::fs::create_dir_all(&root).unwrap();
    let (ready, address) = std::sync::mpsc::channel();
    thread::spawn(move || Runtime::new().unwrap().block_on(listen(&root, &ready)));
    address.recv().unwrap()
}

async fn listen(root: &Path, ready: &std::sync::mpsc::Sender<SocketAddr>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    ready.send(listener.local_addr().unwrap()).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let root = root.to_owned();
        let service = service_fn(move |request| answer(root.clone(), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(root: PathBuf, request: Request<Incoming>) -> io::Result<Answer> {
    let path = root.join(request.uri().path().trim_start_matches('/'));
    let nothing = |status| Response::builder().status(status).body(Either::Left(Empty::new())).unwrap();
    match *request.method() {
        // The bucket.
        Method::PUT if path.parent() == Some(&root) => std::fs::create_dir(path)?,
        Method::PUT => put(path, request.into_body()).await?,
        Method::GET => return get(path).await,
        Method::DELETE => {
            spawn_blocking(move || std::fs::remove_file(path)).await??;
            return Ok(nothing(StatusCode::NO_CONTENT));
        }
        _ => return Ok(nothing(StatusCode::METHOD_NOT_ALLOWED)),
    }
    Ok(nothing(StatusCode::OK))
}

async fn put(path: PathBuf, mut body: Incoming) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let unfinished = path.with_extension(format!("{}.part", NEXT.fetch_add(1, Ordering::Relaxed)));
    let file = File::create(&unfinished)?;
    let mut writing = spawn_blocking(move || Ok(file));
    let mut piece = BytesMut::new();
    loop {
        let frame = body.frame().await.transpose().map_err(io::Error::other)?;
        let ended = frame.is_none();
        if let Some(Ok(data)) = frame.map(Frame::into_data) {
            piece.extend_from_slice(&data);
        }
        if piece.len() < PIECE_BYTES && !ended {
            continue;
        }
        let mut file = writing.await??;
        let full = piece.split();
        if ended {
            return spawn_blocking(move || finish(file, &full, &unfinished, &path)).await?;
        }
        writing = spawn_blocking(move || file.write_all(&full).map(|()| file));
    }
}

fn finish(mut file: File, rest: &[u8], unfinished: &Path, path: &Path) -> io::Result<()> {
    file.write_all(rest)?;
    file.sync_data()?;
    std::fs::rename(unfinished, path)?;
    File::open(path.parent().ok_or(io::ErrorKind::NotFound)?)?.sync_all()
}

async fn get(path: PathBuf) -> io::Result<Answer> {
    let file = spawn_blocking(move || File::open(path)).await??;
    let length = file.metadata()?.len();
    let (mut sender, pieces) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut file = Some(file);
        while let Some(open) = file.take() {
            let read = spawn_blocking(move || {
                let mut piece = Vec::with_capacity(PIECE_BYTES);
                let more = (&open).take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
                io::Result::Ok((open, (more > 0).then_some(piece)))
            });
            let Ok(Ok((open, Some(piece)))) = read.await else { return };
            if sender.send(Ok(Frame::data(piece.into()))).await.is_err() {
                return;
            }
            file = Some(open);
        }
    });
    let answer = Response::builder().header("content-length", length);
    Ok(answer.body(Either::Right(StreamBody::new(pieces))).unwrap())
}
