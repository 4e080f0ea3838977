// Scans a document once, front to back, and records where its values are. It keeps no stack: the entry of an open
// container holds the index of the container around it, so that depth needs no memory of its own.

/// The scanner: strictly RFC 8259 (no comments, no byte order mark, no NaN).
struct JSONScanner {
    let bytes: UnsafeRawBufferPointer
    let limits: JSONLimits
    private(set) var entries: [JSONEntry] = []
    var position = 0
    /// The innermost open container.
    private var container = JSONEntry.none
    private var depth = 0
    private var values = 0
    /// The names of the object that is being closed; kept to reuse its memory.
    private var names: [UInt32] = []

    private enum Expectation {
        case value, firstElement, firstMember, name, separator
    }

    init(_ bytes: UnsafeRawBufferPointer, _ limits: JSONLimits) {
        self.bytes = bytes
        self.limits = limits
    }

    /// Scans the whole document.
    ///
    /// - Throws: ``JSONError`` with the offset of the first invalid byte.
    mutating func scan() throws(JSONError) {
        let largest = min(limits.size, JSONLimits.largestSize)
        guard bytes.count <= largest else { throw JSONError(.tooLarge, at: largest) }
        skipWhiteSpace()
        guard position < bytes.count else { throw JSONError(.empty, at: position) }
        // An estimate of the number of values that wastes little memory if it is wrong.
        entries.reserveCapacity(min(bytes.count / 16 + 4, 4096))
        var expectation = try value(bytes[position])
        while container != JSONEntry.none {
            skipWhiteSpace()
            guard position < bytes.count else { throw JSONError(.endsEarly, at: position) }
            let byte = bytes[position]
            switch expectation {
            case .firstElement where byte == UInt8(ascii: "]"), .firstMember where byte == UInt8(ascii: "}"):
                expectation = close()
            case .value, .firstElement:
                expectation = try value(byte)
            case .firstMember, .name:
                guard byte == UInt8(ascii: "\"") else { throw JSONError(.unexpectedByte, at: position) }
                try name()
                expectation = .value
            case .separator:
                expectation = try separator(byte)
            }
        }
        skipWhiteSpace()
        guard position == bytes.count else { throw JSONError(.trailingBytes, at: position) }
    }

    private mutating func skipWhiteSpace() {
        while position < bytes.count, JSONScanner.isWhiteSpace(bytes[position]) { position += 1 }
    }

    /// Section 2: space, tab, line feed, carriage return.
    static func isWhiteSpace(_ byte: UInt8) -> Bool {
        byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09
    }

    private mutating func separator(_ byte: UInt8) throws(JSONError) -> Expectation {
        let isObject = entries[Int(container)].kind == .object
        switch byte {
        case UInt8(ascii: ","):
            position += 1
            return isObject ? .name : .value
        case isObject ? UInt8(ascii: "}") : UInt8(ascii: "]"): return close()
        default: throw JSONError(.unexpectedByte, at: position)
        }
    }

    // MARK: Values

    private mutating func value(_ byte: UInt8) throws(JSONError) -> Expectation {
        if container != JSONEntry.none {
            guard entries[Int(container)].count < min(limits.members, JSONLimits.largestCount) else {
                throw JSONError(.tooManyMembers, at: position)
            }
            entries[Int(container)].countOne()
        }
        values += 1
        guard values <= limits.values else { throw JSONError(.tooManyValues, at: position) }
        switch byte {
        case UInt8(ascii: "{"): return try open(.object)
        case UInt8(ascii: "["): return try open(.array)
        case UInt8(ascii: "\""):
            var entry = try string(.string)
            entry.next = UInt32(truncatingIfNeeded: entries.count + 1)
            entries.append(entry)
        case UInt8(ascii: "t"): try literal("true", .true)
        case UInt8(ascii: "f"): try literal("false", .false)
        case UInt8(ascii: "n"): try literal("null", .null)
        default: try number()
        }
        return .separator
    }

    private mutating func open(_ kind: JSONEntry.Kind) throws(JSONError) -> Expectation {
        guard depth < limits.depth else { throw JSONError(.tooDeep, at: position) }
        depth += 1
        let index = UInt32(truncatingIfNeeded: entries.count)
        entries.append(JSONEntry(kind, start: position, next: container))
        container = index
        position += 1
        return kind == .object ? .firstMember : .firstElement
    }

    private mutating func close() -> Expectation {
        position += 1
        let index = Int(container)
        container = entries[index].next
        depth -= 1
        entries[index].end = UInt32(truncatingIfNeeded: position)
        entries[index].next = UInt32(truncatingIfNeeded: entries.count)
        if entries[index].kind == .object, entries[index].count > 1, namesAreDuplicate(of: index) {
            entries[index].hasDuplicateNames = true
        }
        return .separator
    }

    private mutating func append(_ kind: JSONEntry.Kind, from start: Int) {
        entries.append(
            JSONEntry(kind, start: start, end: position, next: UInt32(truncatingIfNeeded: entries.count + 1)))
    }

    private mutating func literal(_ word: StaticString, _ kind: JSONEntry.Kind) throws(JSONError) {
        let start = position
        for index in 0..<word.utf8CodeUnitCount {
            guard position < bytes.count else { throw JSONError(.endsEarly, at: position) }
            guard bytes[position] == word.utf8Start[index] else { throw JSONError(.unexpectedByte, at: position) }
            position += 1
        }
        append(kind, from: start)
    }

    /// Section 6: `-`, digits without leading zeros, a fraction, an exponent.
    private mutating func number() throws(JSONError) {
        let start = position
        if bytes[position] == UInt8(ascii: "-") { position += 1 }
        let first = position
        try digits()
        if bytes[first] == UInt8(ascii: "0") { position = first + 1 }
        if position < bytes.count, bytes[position] == UInt8(ascii: ".") {
            position += 1
            try digits()
        }
        if position < bytes.count, bytes[position] | 0x20 == UInt8(ascii: "e") {
            position += 1
            if position < bytes.count, bytes[position] == UInt8(ascii: "+") || bytes[position] == UInt8(ascii: "-") {
                position += 1
            }
            try digits()
        }
        guard position - start <= limits.numberLength else { throw JSONError(.numberTooLong, at: start) }
        append(.number, from: start)
    }

    /// One or more digits.
    private mutating func digits() throws(JSONError) {
        let start = position
        while position < bytes.count, UInt8(ascii: "0")...UInt8(ascii: "9") ~= bytes[position] { position += 1 }
        guard position > start else {
            throw JSONError(position < bytes.count ? .unexpectedByte : .endsEarly, at: position)
        }
    }

    // MARK: Names

    private mutating func name() throws(JSONError) {
        var entry = try string(.name)
        let plain = (entry.range.lowerBound + 1)..<(entry.range.upperBound - 1)
        entry.next =
            entry.hasEscapes
            ? JSONName.hash(JSONTextBytes(bytes, entry.range))
            : JSONName.hash(UnsafeRawBufferPointer(rebasing: bytes[plain]))
        entries.append(entry)
        skipWhiteSpace()
        guard position < bytes.count else { throw JSONError(.endsEarly, at: position) }
        guard bytes[position] == UInt8(ascii: ":") else { throw JSONError(.unexpectedByte, at: position) }
        position += 1
    }

    /// Whether two members of an object have the same name after unescaping. Sorting by hash and then by bytes keeps
    /// many names with equal hashes harmless.
    private mutating func namesAreDuplicate(of object: Int) -> Bool {
        names.removeAll(keepingCapacity: true)
        var index = object + 1
        while index < entries.count {
            names.append(UInt32(truncatingIfNeeded: index))
            index = Int(entries[index + 1].next)
        }
        let table = JSONTable(bytes: bytes, entries: entries)
        // Comparing few names is faster than sorting them.
        if names.count <= 16 {
            for later in 1..<names.count {
                for earlier in 0..<later where table.isSameName(names[earlier], names[later]) { return true }
            }
            return false
        }
        names.sort { table.nameIsOrdered($0, before: $1) }
        return zip(names, names.dropFirst()).contains { table.isSameName($0, $1) }
    }
}
