//! The connections that scan, each in use by one read at a time.

use super::failure::store_error;
use super::statements::Statements;
use crate::error::StoreError;
use crate::store::StoreFuture;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The connections.
#[derive(Clone)]
pub(super) struct Pool(Arc<Shared>);

struct Shared {
    path: Arc<Path>,
    idle: Mutex<Vec<Connection>>,
    readers: usize,
    permits: Arc<Semaphore>,
}

impl Pool {
    /// A pool of these `connections`, all to the file at `path`.
    pub(super) fn new(path: Arc<Path>, connections: Vec<Connection>) -> Self {
        let readers = connections.len();
        assert!(readers > 0, "a store without readers answers nothing");
        let permits = Arc::new(Semaphore::new(readers));
        Self(Arc::new(Shared { path, idle: Mutex::new(connections), readers, permits }))
    }

    /// The path of the file.
    pub(super) fn path(&self) -> Arc<Path> {
        Arc::clone(&self.0.path)
    }

    /// Runs `read` on a free connection, in a thread that may block.
    pub(super) fn read<T, F>(&self, read: F) -> StoreFuture<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Statements<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let permit = Arc::clone(&shared.permits).acquire_owned().await;
            let permit = permit.map_err(|closed| StoreError::Failed(closed.to_string()))?;
            let task = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                shared.run(read)
            });
            task.await.map_err(|broken| StoreError::Failed(broken.to_string()))?
        })
    }
}

impl Shared {
    fn run<T>(&self, read: impl FnOnce(&Statements<'_>) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let connection = self.idle.lock().pop();
        let connection = connection.expect("there are as many connections as permits, and this thread holds a permit");
        let answer = read(&Statements::new(&connection));
        let mut idle = self.idle.lock();
        idle.push(connection);
        assert!(idle.len() <= self.readers, "a connection returns to the pool once");
        drop(idle);
        answer.map_err(|error| store_error(&self.path, &error))
    }
}
