/// A document's bytes and its index, valid while the bytes are accessible.
struct JSONTable {
    let bytes: UnsafeRawBufferPointer
    let entries: [JSONEntry]

    // MARK: Names

    /// Whether two names are equal after unescaping.
    func isSameName(_ left: UInt32, _ right: UInt32) -> Bool {
        let (left, right) = (entries[Int(left)], entries[Int(right)])
        guard left.next == right.next else { return false }
        if !left.hasEscapes, !right.hasEscapes { return bytes[left.range].elementsEqual(bytes[right.range]) }
        return text(left).elementsEqual(text(right))
    }

    /// An order in which equal names are neighbours.
    func nameIsOrdered(_ left: UInt32, before right: UInt32) -> Bool {
        let (left, right) = (entries[Int(left)], entries[Int(right)])
        guard left.next == right.next else { return left.next < right.next }
        return text(left).lexicographicallyPrecedes(text(right))
    }

    /// Whether a string or name equals `name` after unescaping.
    func hasText(_ name: [UInt8], _ entry: JSONEntry) -> Bool {
        guard entry.hasEscapes else {
            guard entry.range.count - 2 == name.count else { return false }
            let start = entry.range.lowerBound + 1
            return name.indices.allSatisfy { bytes[start + $0] == name[$0] }
        }
        return text(entry).elementsEqual(name)
    }

    func text(_ entry: JSONEntry) -> JSONTextBytes { JSONTextBytes(bytes, entry.range) }

    // MARK: Values

    func entry(_ place: JSONPlace) -> JSONEntry { entries[Int(place.index)] }

    /// The value of the first member with that name.
    func member(_ name: JSONName, of place: JSONPlace) -> JSONPlace? {
        guard entry(place).kind == .object else { return nil }
        var index = Int(place.index) + 1
        let end = Int(entry(place).next)
        while index < end {
            if entries[index].next == name.hash, hasText(name.bytes, entries[index]) {
                return JSONPlace(index + 1, in: place)
            }
            index = Int(entries[index + 1].next)
        }
        return nil
    }

    /// The values in an object or array, in order; empty for other values.
    func children(of place: JSONPlace) -> JSONChildren { JSONChildren(entries, place) }
}

/// A name to search for, with its hash.
struct JSONName: Hashable, Sendable {
    let bytes: [UInt8]
    let hash: UInt32

    init(_ bytes: [UInt8]) {
        self.bytes = bytes
        hash = Self.hash(bytes)
    }

    /// FNV-1a with 32 bits: names are short, and correctness does not depend on the hash.
    static func hash(_ bytes: some Sequence<UInt8>) -> UInt32 {
        var hash: UInt32 = 0x811C_9DC5
        for byte in bytes { hash = (hash ^ UInt32(byte)) &* 0x0100_0193 }
        return hash
    }
}

/// Names to look for among those of an object's members.
package struct JSONNames: Sendable {
    fileprivate let names: [JSONName]

    package init(_ names: some Sequence<String>) { self.names = names.map { JSONName(Array($0.utf8)) } }
}

extension JSONDocument {
    /// The members of an object that have none of these names.
    ///
    /// - Returns: nil if it is no object, or if a name has escapes or characters besides ASCII, which other programs may
    ///   compare in another way.
    package func members(of object: JSONPlace, besides others: JSONNames) -> [JSONPlace]? {
        guard kind(object) == .object else { return nil }
        return withTable { table in
            var members: [JSONPlace] = []
            for place in table.children(of: object) {
                let name = table.entries[Int(place.index) - 1]
                guard !name.hasEscapes, table.bytes[name.range].allSatisfy({ $0 < 0x80 }) else { return nil }
                let isNamed = others.names.contains { $0.hash == name.next && table.hasText($0.bytes, name) }
                if !isNamed { members.append(place) }
            }
            return members
        }
    }
}

/// The values in an object or array, in order.
package struct JSONChildren: Sequence, IteratorProtocol {
    private let entries: [JSONEntry]
    private let parent: JSONPlace
    private var index: Int
    private let end: Int
    private let isObject: Bool

    init(_ entries: [JSONEntry], _ parent: JSONPlace) {
        self.entries = entries
        self.parent = parent
        let entry = entries[Int(parent.index)]
        isObject = entry.kind == .object
        index = Int(parent.index) + 1
        end = isObject || entry.kind == .array ? Int(entry.next) : 0
    }

    package mutating func next() -> JSONPlace? {
        guard index < end else { return nil }
        if isObject { index += 1 }
        defer { index = Int(entries[index].next) }
        return JSONPlace(index, in: parent)
    }
}
