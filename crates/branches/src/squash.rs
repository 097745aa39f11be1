//! Joins layers of a branch, so that a branch with the changes of many commands is read from few
//! objects.
//!
//! A joined layer has the events of the layers that it replaces, at their positions. The
//! replacement of the branch's object that lists the newest layer also lists the joined one, so
//! there is no state between. The old layers stay in the store for branches that began from this
//! one and for readers; `gc` deletes layers that no branch lists. Layers that a branch inherited
//! are not joined.
//!
//! Eight layers of about one size become one. So an event is written once for each eight-fold
//! growth of its branch, and a branch has about eight layers of each size.

use journal::{JournalBuffer, SegmentReader};
use metastore::{Branch, Layer};
use objstore::{Expect, ObjectStore};
use types::{Origin, Result, Seq};

use crate::view::read_layer;
use crate::work::LAYER_BYTES;

/// So many layers become one.
const TOGETHER: usize = 8;
/// Layers of less than this are of one size.
const SMALL_BYTES: u64 = 64 << 10;

/// Joins the newest layers of a branch if there are enough of one size. The caller holds the lock
/// of the branch, and replaces its object.
///
/// # Errors
/// The error of the store. No object refers to the written layer then.
pub(crate) fn squashed(store: &dyn ObjectStore, mut branch: Branch) -> Result<Branch> {
    let Some(from) = joinable(&branch) else { return Ok(branch) };
    let first = branch.layers[from].first;
    let mut buffer = JournalBuffer::new(first, false);
    for layer in &branch.layers[from..] {
        let bytes = read_layer(store, layer)?;
        copy(&bytes, &mut buffer).map_err(|error| error.in_journal(&layer.name()))?;
    }
    let layer = put(store, &branch, buffer, first, branch.next_layer())?;
    branch.layers.truncate(from);
    branch.layers.push(layer);
    Ok(branch)
}

/// Stores events as a layer of a branch, which does not list it yet.
pub(crate) fn put(
    store: &dyn ObjectStore,
    branch: &Branch,
    mut buffer: JournalBuffer,
    first: Seq,
    number: u64,
) -> Result<Layer> {
    buffer.close_block();
    let events = buffer.next_seq().0 - first.0;
    let bytes = client::journal_of(branch.root, first, buffer.blocks());
    let owner = branch.id;
    let layer = Layer { owner, number, first, events, ..Layer::default() }.with_object(&bytes);
    // An object of this name is left from a process that died here: no branch lists it.
    let _ = store.put(&layer.name(), &bytes, Expect::Any)?;
    Ok(layer)
}

fn copy(
    layer: &[u8],
    buffer: &mut JournalBuffer,
) -> std::result::Result<(), journal::JournalError> {
    let mut reader = SegmentReader::open(layer)?;
    while let Some(block) = reader.next_block()? {
        let mut events = block.events();
        while let Some(record) = events.next_event()? {
            buffer.append(Origin::default(), &record.event);
        }
    }
    Ok(())
}

/// Where the newest layers begin that are to be joined.
fn joinable(branch: &Branch) -> Option<usize> {
    let own = |layer: &&Layer| layer.owner == branch.id;
    let largest = branch.layers.iter().rev().take_while(own).map(tier).max()?;
    (0..=largest).find_map(|size| {
        let newest = branch.layers.iter().rev().take_while(own);
        let together: Vec<_> = newest.take_while(|layer| tier(layer) <= size).collect();
        // Smaller layers are joined too, but are no reason to rewrite larger ones.
        let count = together.iter().filter(|layer| tier(layer) == size).count();
        let bytes: u64 = together.iter().map(|layer| layer.bytes).sum();
        let joins = count >= TOGETHER && bytes <= LAYER_BYTES;
        joins.then(|| branch.layers.len() - together.len())
    })
}

/// Sizes that are about one.
fn tier(layer: &Layer) -> u32 {
    match layer.bytes / SMALL_BYTES {
        0 => 0,
        times => times.ilog(TOGETHER as u64) + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where layers of these sizes are joined.
    fn at(sizes: &[u64]) -> Option<usize> {
        let layer = |bytes: &u64| Layer { owner: 7, bytes: *bytes, ..Layer::default() };
        joinable(&Branch { id: 7, layers: sizes.iter().map(layer).collect(), ..Branch::default() })
    }

    #[test]
    fn eight_layers_of_a_size_are_joined_and_large_ones_stay() {
        assert_eq!(at(&[]), None);
        assert_eq!(at(&[100; 7]), None);
        assert_eq!(at(&[100; 8]), Some(0));
        assert_eq!(at(&[100_000, 100, 100, 100, 100, 100, 100, 100]), None);
        assert_eq!(at(&[[100_000; 1].as_slice(), &[100; 8]].concat()), Some(1));
        let two = [[1 << 20; 7].as_slice(), &[100_000]].concat();
        assert_eq!(at(&two), None);
        let eight = [two.as_slice(), &[1 << 20]].concat();
        assert_eq!(at(&eight), Some(0), "a smaller one goes with larger ones");
        assert_eq!(at(&[LAYER_BYTES / 4; 8]), None, "a layer has a bound");
    }

    #[test]
    fn layers_of_others_are_not_touched() {
        let mut layers = vec![Layer { owner: 1, bytes: 100, ..Layer::default() }; 20];
        let mut branch = Branch { id: 7, layers: layers.clone(), ..Branch::default() };
        assert_eq!(joinable(&branch), None);
        layers.extend([Layer { owner: 7, bytes: 100, ..Layer::default() }; 8]);
        branch.layers = layers;
        assert_eq!(joinable(&branch), Some(20));
    }

    #[test]
    fn each_event_is_rewritten_only_a_few_times() {
        let mut branch = Branch { id: 7, ..Branch::default() };
        let (mut written, mut most) = (0, 0);
        for _ in 0..20_000 {
            branch.layers.push(Layer { owner: 7, bytes: 10_000, ..Layer::default() });
            while let Some(from) = joinable(&branch) {
                let bytes = branch.layers.drain(from..).map(|layer| layer.bytes).sum();
                written += bytes;
                branch.layers.push(Layer { owner: 7, bytes, ..Layer::default() });
            }
            most = most.max(branch.layers.len());
        }
        // 20,000 layers of 10 KB: three more sizes until a layer has 64 MiB.
        assert!(written < 5 * 200_000_000, "{written} bytes");
        assert!(most < 40, "{most} layers");
    }
}
