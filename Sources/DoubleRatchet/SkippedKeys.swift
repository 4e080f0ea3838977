// Keys of messages that have not come yet (MKSKIPPED), bounded, keyed by chain and number.

/// The store of skipped keys. The oldest goes first.
struct SkippedKeys: Sendable {
    struct Place: Hashable, Sendable {
        let ratchetKey: [UInt8]
        let index: UInt32
    }

    private var keys: [Place: SecretBytes] = [:]
    /// In the order in which they were skipped; used ones are skipped over when the oldest is sought.
    private var order: [Place] = []
    private var head = 0

    var count: Int { keys.count }

    subscript(place: Place) -> SecretBytes? { keys[place] }

    mutating func insert(_ place: Place, _ key: SecretBytes) {
        if keys.updateValue(key, forKey: place) == nil { order.append(place) }
        while keys.count > RatchetLimits.maximumSkippedKeys {
            keys[order[head]] = nil
            head += 1
        }
        if head > RatchetLimits.maximumSkippedKeys || order.count > 4 * RatchetLimits.maximumSkippedKeys { compact() }
    }

    mutating func remove(_ place: Place) {
        guard keys.removeValue(forKey: place) != nil else { return }
        if keys.isEmpty {
            order.removeAll()
            head = 0
        }
    }

    /// All keys, the oldest first.
    var inOrder: [(place: Place, key: SecretBytes)] {
        var seen: Set<Place> = []
        return order[head...].compactMap { place in
            guard let key = keys[place], seen.insert(place).inserted else { return nil }
            return (place, key)
        }
    }

    private mutating func compact() {
        order = inOrder.map(\.place)
        head = 0
    }
}
