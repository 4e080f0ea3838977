/// Reads the output of ``FormWriter``. Checks each length against the bytes that are left before it allocates.
struct FormReader {
    typealias Unreadable = RequestForm.Unreadable

    private let input: [UInt8]
    private var position = 0

    init(_ input: [UInt8]) { self.input = input }

    var isAtEnd: Bool { position == input.count }
    var rest: [UInt8] { Array(input[position...]) }

    mutating func byte() throws(Unreadable) -> UInt8 {
        guard position < input.count else { throw .damaged }
        defer { position += 1 }
        return input[position]
    }

    mutating func bool() throws(Unreadable) -> Bool {
        switch try byte() {
        case 0: false
        case 1: true
        default: throw .damaged
        }
    }

    mutating func number() throws(Unreadable) -> UInt64 {
        guard input.count - position >= 8 else { throw .damaged }
        defer { position += 8 }
        return input[position..<(position + 8)].reduce(0) { $0 << 8 | UInt64($1) }
    }

    mutating func length() throws(Unreadable) -> Int {
        guard input.count - position >= 4 else { throw .damaged }
        let value = input[position..<(position + 4)].reduce(0) { $0 << 8 | Int($1) }
        position += 4
        // Each element has at least one byte, so a list never has more elements than there are bytes left.
        guard value <= input.count - position else { throw .damaged }
        return value
    }

    mutating func message() throws(Unreadable) -> CarriedMessage {
        try CarriedMessage(
            kind: text(), target: text(), parts: list { (r) throws(Unreadable) in try r.bytes() })
    }

    mutating func bytes() throws(Unreadable) -> [UInt8] {
        let count = try length()
        defer { position += count }
        return Array(input[position..<(position + count)])
    }

    mutating func text() throws(Unreadable) -> String {
        let count = try length()
        defer { position += count }
        guard let text = String(validating: input[position..<(position + count)], as: UTF8.self) else { throw .damaged }
        return text
    }

    mutating func list<Element>(
        _ read: (inout FormReader) throws(Unreadable) -> Element
    ) throws(Unreadable) -> [Element] {
        let count = try length()
        var values: [Element] = []
        for _ in 0..<count { values.append(try read(&self)) }
        return values
    }

    mutating func optional<Value>(
        _ read: (inout FormReader) throws(Unreadable) -> Value
    ) throws(Unreadable) -> Value? {
        try bool() ? try read(&self) : nil
    }

    mutating func reference() throws(Unreadable) -> EntityReference {
        EntityReference(type: try text(), local: try text())
    }

    mutating func config() throws(Unreadable) -> APIRequestConfig {
        guard let method = HTTPMethod(rawValue: try byte()) else { throw .damaged }
        let path = APIRequestPath(try list { (reader) throws(Unreadable) in try reader.segment() })
        var config = APIRequestConfig(method: method, path: path)
        config.host = try optional { (reader) throws(Unreadable) in try reader.text() }
        config.query = try parameters()
        config.headers = try parameters()
        config.body = try body()
        config.includeSessionKey = try bool()
        config.timeoutInterval = try optional { (reader) throws(Unreadable) in Int64(bitPattern: try reader.number()) }
        config.deduplicate = try bool()
        config.tag = try optional { (reader) throws(Unreadable) in try reader.text() }
        guard let synchronization = QueueingStrategy.Synchronization(rawValue: try byte()) else { throw .damaged }
        config.queueingStrategy = QueueingStrategy(
            synchronization: synchronization,
            retryPolicy: try list { (reader) throws(Unreadable) in try reader.policy() })
        config.background = try bool()
        return config
    }

    private mutating func parameters() throws(Unreadable) -> Parameters {
        Parameters(try list { (reader) throws(Unreadable) in try reader.item() })
    }

    private mutating func element() throws(Unreadable) -> ParameterValue.Element { try element(of: try byte()) }

    private mutating func element(of kind: UInt8) throws(Unreadable) -> ParameterValue.Element {
        switch kind {
        case 0: .text(try text())
        case 1: .reference(try reference())
        default: throw .damaged
        }
    }

    private mutating func segment() throws(Unreadable) -> APIRequestPath.Segment {
        let kind = try byte()
        if kind == 2 { return .raw(try text()) }
        switch try element(of: kind) {
        case .text(let text): return .text(text)
        case .reference(let reference): return .reference(reference)
        }
    }

    private mutating func item() throws(Unreadable) -> Parameters.Item {
        let name = try text()
        let isList = try bool()
        let elements = try list { (reader) throws(Unreadable) in try reader.element() }
        if isList { return Parameters.Item(name: name, value: .list(elements)) }
        guard elements.count == 1 else { throw .damaged }
        switch elements[0] {
        case .text(let text): return Parameters.Item(name: name, value: .text(text))
        case .reference(let reference): return Parameters.Item(name: name, value: .reference(reference))
        }
    }

    private mutating func body() throws(Unreadable) -> RequestBody? {
        switch try byte() {
        case 0: nil
        case 1: .rawData(try bytes())
        case 2: .formURLEncoded(try parameters())
        case 3: .json(try json(JSONValue.maximumDepth))
        default: throw .damaged
        }
    }

    private mutating func policy() throws(Unreadable) -> QueueingStrategy.RetryPolicy {
        switch try byte() {
        case 0: .onNetworkInterrupt
        case 1: .onRequestTimeout
        case 2: .onTransientStatus
        case 3: .onCustomErrorCodes(try codes())
        case 4: .onAllErrorCodesExcept(try codes())
        default: throw .damaged
        }
    }

    private mutating func codes() throws(Unreadable) -> [Int] {
        try list { (reader) throws(Unreadable) in Int(Int64(bitPattern: try reader.number())) }
    }

    private mutating func json(_ depth: Int) throws(Unreadable) -> JSONValue {
        switch try byte() {
        case 0: return .null
        case 1: return .bool(false)
        case 2: return .bool(true)
        case 3: return .number(try text())
        case 4: return .string(try text())
        case 5: return .reference(try reference())
        case 6:
            guard depth > 0 else { throw .damaged }
            return .array(try list { (reader) throws(Unreadable) in try reader.json(depth - 1) })
        case 7:
            guard depth > 0 else { throw .damaged }
            return .object(
                try list { (reader) throws(Unreadable) in
                    JSONValue.Member(try reader.text(), try reader.json(depth - 1))
                })
        default: throw .damaged
        }
    }
}
