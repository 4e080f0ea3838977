package import NIOCore

/// Why edits cannot be applied. If one is thrown, none is applied.
package enum JSONEditError: Error, Equatable, Sendable {
    /// Two edits touch the same bytes, or one inserts next to a removed member. With the offset of the later one.
    case overlap(at: Int)
    /// The object already has a member with that name, or gets two of them.
    case nameExists(String)
    /// The object to edit has two members with the same name; see ``JSONDocument``.
    case duplicateNames(at: Int)
    /// Insertion next to a value that is not a member of an object.
    case notAMember(at: Int)
    /// Insertion into a value that is not an object.
    case notAnObject(at: Int)
    /// Removal of the whole document.
    case wholeDocument
    /// The form would be larger than a document may be.
    case tooLarge
}

/// Edits of a document, collected and applied in one pass. All bytes that no edit touches stay as received: white
/// space, the order of members, escapes, the form of numbers.
///
///     var edits = JSONEdits(document)
///     edits.replace(text, with: .base64(envelope))
///     edits.set("encrypted", to: .boolean(true), beside: text)
///     let changed = try edits.apply()
package struct JSONEdits: Sendable {
    package let document: JSONDocument
    private var replacements: [(place: JSONPlace, value: JSONFragment)] = []
    /// By the index of the container's entry.
    private var containers: [UInt32: JSONContainerEdits] = [:]

    package init(_ document: JSONDocument) { self.document = document }

    package var isEmpty: Bool { replacements.isEmpty && containers.isEmpty }

    /// Replaces a value; a member keeps its name.
    package mutating func replace(_ place: JSONPlace, with value: JSONFragment) {
        replacements.append((place, value))
    }

    /// Adds a member directly after another member of the same object. Several additions after the same member keep the
    /// order of the calls.
    package mutating func insert(_ name: String, _ value: JSONFragment, beside place: JSONPlace) {
        containers[place.parent, default: .init()].behind.append((place, (name, value)))
    }

    /// Adds a member at the end of an object.
    package mutating func insert(_ name: String, _ value: JSONFragment, into object: JSONPlace) {
        containers[object.index, default: .init()].atEnd.append((name, value))
    }

    /// Sets a member of the same object: replaces its value if it exists, else adds it after `place`.
    package mutating func set(_ name: String, to value: JSONFragment, beside place: JSONPlace) {
        guard place.parent != JSONEntry.none else { return insert(name, value, beside: place) }
        // Only the entry's index is needed to find an object, not its parent.
        let found = document.member(name, of: JSONPlace(Int(place.parent), in: nil))
        if let found { replace(found, with: value) } else { insert(name, value, beside: place) }
    }

    /// Removes a member or element and one comma. White space around the remaining values is kept unless it belongs to
    /// the comma.
    package mutating func remove(_ place: JSONPlace) {
        containers[place.parent, default: .init()].removed.append(place)
    }

    /// Applies all edits.
    ///
    /// - Returns: a valid document, without duplicate names in the edited objects.
    /// - Throws: ``JSONEditError``.
    package func apply() throws(JSONEditError) -> ByteBuffer { try changed().bytes }

    /// Applies all edits.
    ///
    /// - Returns: the document as ``apply()`` returns it, and the ranges of what the edits have written, in order; nil if
    ///   they are unknown, because a string of the document was parsed, or its form is not JSON.
    package func changed() throws(JSONEditError) -> (bytes: ByteBuffer, written: [Range<Int>]?) {
        guard !isEmpty else { return (document.received, []) }
        let splices = try splices()
        return (try document.written(splices), document.isPlain ? JSONSplice.written(splices) : nil)
    }

    /// All edits in order.
    private func splices() throws(JSONEditError) -> [JSONSplice] {
        var splices: [JSONSplice] = []
        for (place, value) in replacements {
            if place.parent != JSONEntry.none { try refuseDuplicates(document.entries[Int(place.parent)]) }
            splices.append(JSONSplice(document.range(place), value.bytes))
        }
        for (index, edits) in containers.sorted(by: { $0.key < $1.key }) {
            guard index != JSONEntry.none else {
                throw edits.removed.isEmpty ? .notAMember(at: document.range(document.root).lowerBound) : .wholeDocument
            }
            try refuseDuplicates(document.entries[Int(index)])
            splices += try edits.splices(of: JSONPlace(Int(index), in: nil), in: document)
        }
        splices = JSONSplice.ordered(splices)
        for (earlier, later) in zip(splices, splices.dropFirst())
        where later.range.lowerBound < earlier.range.upperBound {
            throw .overlap(at: later.range.lowerBound)
        }
        return splices
    }

    private func refuseDuplicates(_ entry: JSONEntry) throws(JSONEditError) {
        guard !entry.hasDuplicateNames else { throw .duplicateNames(at: entry.range.lowerBound) }
    }
}

/// The edits of one object or array.
struct JSONContainerEdits: Sendable {
    typealias Member = (name: String, value: JSONFragment)

    var removed: [JSONPlace] = []
    var behind: [(place: JSONPlace, member: Member)] = []
    var atEnd: [Member] = []

    /// The edits as splices. A run of removed members includes the comma before it, or the one after it if no member
    /// before it stays.
    func splices(of container: JSONPlace, in document: JSONDocument) throws(JSONEditError) -> [JSONSplice] {
        let entry = document.entries[Int(container.index)]
        let isObject = entry.kind == .object
        guard isObject || behind.isEmpty else { throw .notAMember(at: entry.range.lowerBound) }
        guard isObject || atEnd.isEmpty else { throw .notAnObject(at: entry.range.lowerBound) }
        // Most edits remove one or two members, for which a set would cost more.
        let set = removed.count > 4 ? Set(removed) : []
        let gone = { (place: JSONPlace) in removed.count > 4 ? set.contains(place) : removed.contains(place) }
        if let place = behind.first(where: { gone($0.place) })?.place ?? twice(removed) {
            throw .overlap(at: document.range(place).lowerBound)
        }
        try refuseNames(container, in: document, but: gone)

        var splices: [JSONSplice] = []
        for (place, member) in behind {
            splices.append(JSONSplice(at: document.range(place).upperBound, Self.written([member], comma: true)))
        }
        if removed.isEmpty, atEnd.isEmpty { return splices }
        var (stays, run): (end: Int?, run: Range<Int>?) = (nil, nil)
        for child in document.children(container) {
            let range = document.range(child)
            let start = isObject ? document.entries[Int(child.index) - 1].range.lowerBound : range.lowerBound
            if gone(child) {
                run = (run?.lowerBound ?? stays ?? start)..<range.upperBound
                continue
            }
            // A run at the very front ends at the start of the first member that stays.
            if let run { splices.append(JSONSplice(run.lowerBound..<(stays == nil ? start : run.upperBound), [])) }
            run = nil
            stays = range.upperBound
        }
        let last = Self.written(atEnd, comma: stays != nil)
        if let run {
            // If no member stays, the added ones replace the whole run.
            splices.append(JSONSplice(run, stays == nil ? last : []))
            if stays == nil { return splices }
        }
        if !last.isEmpty { splices.append(JSONSplice(at: stays ?? entry.range.lowerBound + 1, last)) }
        return splices
    }

    private func twice(_ places: [JSONPlace]) -> JSONPlace? {
        guard places.count > 1 else { return nil }
        var seen: Set<JSONPlace> = []
        return places.first { !seen.insert($0).inserted }
    }

    private func refuseNames(
        _ container: JSONPlace, in document: JSONDocument, but gone: (JSONPlace) -> Bool
    ) throws(JSONEditError) {
        guard !behind.isEmpty || !atEnd.isEmpty else { return }
        var seen: Set<JSONName> = []
        for (name, _) in behind.map(\.member) + atEnd {
            let key = JSONName(Array(name.utf8))
            let found = document.withTable { $0.member(key, of: container) }
            let stays = found.map { !gone($0) } ?? false
            guard !stays, seen.insert(key).inserted else { throw .nameExists(name) }
        }
    }

    private static func written(_ members: [Member], comma: Bool) -> [UInt8] {
        var bytes: [UInt8] = []
        for (index, member) in members.enumerated() {
            if comma || index > 0 { bytes.append(UInt8(ascii: ",")) }
            JSONStringWriter.append(member.name.utf8, to: &bytes)
            bytes.append(UInt8(ascii: ":"))
            bytes.append(contentsOf: member.value.bytes)
        }
        return bytes
    }
}

/// Bytes that replace a range of others.
struct JSONSplice: Sendable {
    /// In bytes from the beginning of the document.
    let range: Range<Int>
    var bytes: [UInt8]

    init(_ range: Range<Int>, _ bytes: [UInt8]) { (self.range, self.bytes) = (range, bytes) }
    init(at offset: Int, _ bytes: [UInt8]) { self.init(offset..<offset, bytes) }

    /// Sorted by position. An insertion comes before a removal that starts at the same offset; insertions at the same
    /// offset keep the order of the calls.
    static func ordered(_ splices: [JSONSplice]) -> [JSONSplice] {
        splices.enumerated().sorted { left, right in
            (left.element.range.lowerBound, left.element.range.upperBound, left.offset)
                < (right.element.range.lowerBound, right.element.range.upperBound, right.offset)
        }.map(\.element)
    }

    /// Returns where the bytes of the splices are after they are applied.
    ///
    /// - Parameter splices: in order, not overlapping.
    static func written(_ splices: [JSONSplice]) -> [Range<Int>] {
        var growth = 0
        return splices.map { splice in
            let start = splice.range.lowerBound + growth
            growth += splice.bytes.count - splice.range.count
            return start..<start + splice.bytes.count
        }
    }

    /// - Parameter splices: in order, not overlapping.
    static func apply(_ splices: [JSONSplice], to bytes: ByteBuffer) -> ByteBuffer {
        let growth = splices.reduce(0) { $0 + $1.bytes.count - $1.range.count }
        var output = ByteBuffer()
        output.reserveCapacity(bytes.readableBytes + growth)
        bytes.withUnsafeReadableBytes { raw in
            var position = 0
            for splice in splices {
                output.writeBytes(UnsafeRawBufferPointer(rebasing: raw[position..<splice.range.lowerBound]))
                output.writeBytes(splice.bytes)
                position = splice.range.upperBound
            }
            output.writeBytes(UnsafeRawBufferPointer(rebasing: raw[position...]))
        }
        return output
    }
}
