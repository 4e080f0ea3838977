// The errors of the port.

package import RequestQueue

/// Why a store cannot be opened, read or written. Each case has its own repair.
@usableFromInline
package enum StoreError: Error, Equatable, Sendable {
    /// Another process has it open.
    case locked(String)
    /// Either the storage key or the store is missing.
    case missing(String)
    /// It cannot be read.
    case corrupt(String)
    /// A row, or the schema, was changed by a program without the storage key.
    case altered(String)
    /// It was sealed under another storage key.
    case wrongKey(String)
    /// The storage key exists and cannot be used.
    case unusableKey(String)
    /// The store was replaced by an older state of it.
    case rolledBack(String)
    /// The store was moved into another kind of store, and what is left here is an old copy.
    case moved(String)
    /// A newer version of the program has written it.
    case tooNew(found: Int, known: Int)
    /// It could not be written.
    case unavailable(String)
    /// It is unknown whether a transaction was committed, such as after a lost connection. Nothing that depends on it
    /// may be answered; the process restarts from the stored state.
    case unknown(String)
    /// Another gateway has written a session since it was read.
    case fenced
    /// The committer does not own this shard, or no longer: its epoch in the store is another one. Nothing of what failed
    /// is written.
    case epochLost(Shard)

    /// Stays the same if the text changes.
    package var code: String {
        switch self {
        case .locked: "store-locked"
        case .missing: "store-missing"
        case .corrupt: "store-damaged"
        case .altered: "store-altered"
        case .wrongKey: "store-wrong-key"
        case .unusableKey: "store-unusable-key"
        case .rolledBack: "store-rolled-back"
        case .moved: "store-moved"
        case .tooNew: "store-too-new"
        case .unavailable: "store-unavailable"
        case .unknown: "store-outcome-unknown"
        case .fenced: "store-fenced"
        case .epochLost: "store-epoch-lost"
        }
    }

    package var message: String {
        switch self {
        case .locked(let text), .missing(let text), .corrupt(let text), .altered(let text), .wrongKey(let text),
            .unusableKey(let text), .rolledBack(let text), .moved(let text), .unavailable(let text),
            .unknown(let text):
            text
        case .tooNew(let found, let known):
            """
            The store has schema \(found); this program knows schemas up to \(known). Start the newer pawl that wrote \
            it, or bring back the backup that was made before the upgrade: pawl restore FILE --force --data with this \
            directory.
            """
        case .fenced: "Another gateway has taken this session over."
        case .epochLost(let shard): "This gateway does not own shard \(shard.number) of the store, or no longer."
        }
    }
}

extension StoreError {
    /// An error of the queue's tables, as one of the store.
    package init(_ error: QueueStoreError) {
        self = error.isDamage ? .corrupt(error.message) : .unavailable(error.message)
    }
}
