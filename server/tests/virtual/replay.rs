//! The server's trace, replayed on a fresh engine: the engine must request the same actions again.

use crate::site::{MIB, MINUTE, SECOND, Site};
use engine::Rack;
use engine::trace::{Header, Record, Replay, TRACE_FORMAT, TraceMessage};
use std::sync::{Arc, Mutex};

#[test]
fn the_trace_of_a_server_replays_line_by_line() {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let mut site = Site::new("pelican-mini");
    let taken = Arc::clone(&lines);
    site.trace = Some(Arc::new(move |record| taken.lock().unwrap().push(serde_json::to_string(record).unwrap())));
    let (spec, policy, seed) = (site.spec.clone(), site.policy.clone(), site.seed);
    let header = serde_json::to_string(&Header { trace: TRACE_FORMAT, spec, policy, seed }).unwrap();
    site.run(async |larder| {
        larder.put_many("a", 30, 3000).await;
        larder.put("b", 1, 9 * MIB).await.unwrap();
        larder.settle().await;
        tokio::time::sleep(20 * MINUTE).await;
        let drive = larder.context.catalog.blobs_page(None, 1).await.unwrap().items[0].drives[0];
        larder.rack.pull(drive);
        assert_eq!(larder.get_retrying("b").await.unwrap(), 1);
        larder.delete("a0001").await;
        larder.rack.plug(drive);
        tokio::time::sleep(30 * SECOND).await;
        larder.world.close().await;
    });
    let header: Header = serde_json::from_str(&header).unwrap();
    let layout = engine::layout::synthesise(&header.spec).unwrap();
    let mut replay = Replay::new(Rack::new(header.spec, layout, header.policy, header.seed));
    let records: Vec<Record> = lines.lock().unwrap().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    for record in &records {
        replay.take(record).unwrap();
    }
    let count = |what: fn(&TraceMessage) -> bool| records.iter().filter(|record| what(&record.message)).count();
    assert!(count(|message| matches!(message, TraceMessage::Event(_))) > 100);
    assert!(count(|message| matches!(message, TraceMessage::Action(_))) > 100);
    assert!(replay.rack().is_closed(), "to the end");
}
