// The stored form of a request: the part that never changes. Integers are big-endian; texts and bytes follow their
// length in four bytes.

/// Encodes and decodes requests: HTTP requests in version 1, 2 if the path has raw parts, or 3 if there is metadata;
/// messages in version 4.
public enum RequestForm {
    static let versions: ClosedRange<UInt8> = 1...4

    /// A form that cannot be read.
    public enum Unreadable: Error, Equatable, Sendable, CustomStringConvertible {
        /// A newer program has written it.
        case version(UInt8)
        case damaged

        /// For people and logs.
        public var description: String {
            switch self {
            case .version(let version): "it was written by a newer program (version \(version))"
            case .damaged: "its stored form is damaged"
            }
        }
    }

    /// The contents of a stored form.
    public struct Content: Sendable, Equatable {
        /// What is to be sent.
        public var payload: RequestPayload
        /// The entities that the request creates.
        public var creates: [EntityReference]
        /// Ids of the requests that must be done first.
        public var dependsOn: [UInt64]
        /// Data for the response handlers.
        public var identifiers: [UInt8]?
        /// A later request with the same key replaces this one while it waits.
        public var coalescingKey: String?
        /// Data of the application.
        public var metadata: [UInt8]?

        /// Stands for a form that cannot be read, for reports.
        public static let unreadable = Content(payload: .http(APIRequestConfig(path: "")), creates: [], dependsOn: [])
    }

    /// Encodes the part of a request that never changes.
    public static func encode(_ request: QueuedRequest) -> [UInt8] {
        // A stored request has its size; that of a damaged row may be wrong.
        var capacity = request.size
        if capacity == 0 {
            switch request.payload {
            case .http(let config): if case .rawData(let data) = config.body { capacity = data.count + 128 }
            case .message(let message): capacity = message.parts.reduce(128) { $0 + 4 + $1.count }
            }
        }
        var writer = FormWriter(capacity: min(max(capacity, 128), 1 << 16))
        switch request.payload {
        case .http(let config):
            writer.byte(request.metadata != nil ? 3 : config.path.isRaw ? 2 : 1)
            writer.config(config)
        case .message(let message):
            writer.byte(4)
            writer.text(message.kind)
            writer.text(message.target)
            writer.list(message.parts) { $0.bytes($1) }
            writer.optional(request.metadata) { $0.bytes($1) }
        }
        writer.list(request.creates) { $0.reference($1) }
        writer.list(request.dependsOn) { $0.number($1) }
        writer.optional(request.identifiers) { $0.bytes($1) }
        writer.optional(request.coalescingKey) { $0.text($1) }
        if case .http = request.payload, let metadata = request.metadata { writer.bytes(metadata) }
        return writer.output
    }

    /// Decodes a stored form. Any bytes are safe to pass.
    ///
    /// - Throws: ``Unreadable``.
    public static func decode(_ bytes: [UInt8]) throws(Unreadable) -> Content {
        var reader = FormReader(bytes)
        let found = try reader.byte()
        guard versions.contains(found) else { throw .version(found) }
        var metadata: [UInt8]?
        let payload: RequestPayload
        if found == 4 {
            payload = .message(try reader.message())
            metadata = try reader.optional { (r) throws(Unreadable) in try r.bytes() }
        } else {
            payload = .http(try reader.config())
        }
        var content = try Content(
            payload: payload, creates: reader.list { (r) throws(Unreadable) in try r.reference() },
            dependsOn: reader.list { (r) throws(Unreadable) in try r.number() },
            identifiers: reader.optional { (r) throws(Unreadable) in try r.bytes() },
            coalescingKey: reader.optional { (r) throws(Unreadable) in try r.text() },
            metadata: metadata)
        if found == 3 { content.metadata = try reader.bytes() }
        guard reader.isAtEnd else { throw .damaged }
        return content
    }

    /// Encodes the headers of an outcome, for stores.
    public static func encode(_ headers: [ResolvedRequest.Header]) -> [UInt8] {
        var writer = FormWriter(capacity: 64)
        writer.list(headers) { writer, header in
            writer.text(header.name)
            writer.text(header.value)
        }
        return writer.output
    }

    /// Decodes the headers of an outcome; nil if the bytes are damaged.
    public static func decodeHeaders(_ bytes: [UInt8]) -> [ResolvedRequest.Header]? {
        guard let (headers, rest) = decodeHeaders(beginning: bytes), rest.isEmpty else { return nil }
        return headers
    }

    /// Decodes the output of ``encode(_:)-swift.type.method`` at the beginning of bytes.
    ///
    /// - Returns: the fields and the bytes after them; nil if the bytes are damaged.
    package static func decodeHeaders(beginning bytes: [UInt8]) -> ([ResolvedRequest.Header], rest: [UInt8])? {
        var reader = FormReader(bytes)
        let headers = try? reader.list { (r) throws(Unreadable) in try ResolvedRequest.Header(r.text(), r.text()) }
        return headers.map { ($0, reader.rest) }
    }
}

struct FormWriter {
    private(set) var output: [UInt8] = []

    init(capacity: Int) { output.reserveCapacity(capacity) }

    mutating func byte(_ value: UInt8) { output.append(value) }
    mutating func bool(_ value: Bool) { output.append(value ? 1 : 0) }

    mutating func number(_ value: UInt64) {
        length(Int(truncatingIfNeeded: value >> 32))
        length(Int(truncatingIfNeeded: value))
    }

    mutating func length(_ value: Int) {
        // Byte by byte: for four bytes this costs a fraction of appending a sequence.
        output.append(UInt8(truncatingIfNeeded: value >> 24))
        output.append(UInt8(truncatingIfNeeded: value >> 16))
        output.append(UInt8(truncatingIfNeeded: value >> 8))
        output.append(UInt8(truncatingIfNeeded: value))
    }

    mutating func bytes(_ value: [UInt8]) {
        length(value.count)
        output.append(contentsOf: value)
    }

    mutating func text(_ value: String) {
        length(value.utf8.count)
        output.append(contentsOf: value.utf8)
    }

    mutating func list<Element>(_ values: [Element], _ write: (inout FormWriter, Element) -> Void) {
        length(values.count)
        for value in values { write(&self, value) }
    }

    mutating func optional<Value>(_ value: Value?, _ write: (inout FormWriter, Value) -> Void) {
        bool(value != nil)
        if let value { write(&self, value) }
    }

    mutating func reference(_ value: EntityReference) {
        text(value.type)
        text(value.local)
    }

    mutating func config(_ value: APIRequestConfig) {
        byte(value.method.rawValue)
        list(value.path.segments) { writer, segment in
            switch segment {
            case .text(let text): writer.element(.text(text))
            case .reference(let reference): writer.element(.reference(reference))
            case .raw(let text):
                writer.byte(2)
                writer.text(text)
            }
        }
        optional(value.host) { $0.text($1) }
        parameters(value.query)
        parameters(value.headers)
        switch value.body {
        case nil: byte(0)
        case .rawData(let data):
            byte(1)
            bytes(data)
        case .formURLEncoded(let form):
            byte(2)
            parameters(form)
        case .json(let json):
            byte(3)
            self.json(json)
        }
        bool(value.includeSessionKey)
        optional(value.timeoutInterval) { $0.number(UInt64(bitPattern: $1)) }
        bool(value.deduplicate)
        optional(value.tag) { $0.text($1) }
        byte(value.queueingStrategy.synchronization.rawValue)
        list(value.queueingStrategy.retryPolicy) { $0.policy($1) }
        bool(value.background)
    }

    private mutating func parameters(_ value: Parameters) {
        list(value.items) { writer, item in
            writer.text(item.name)
            writer.bool(item.value.isList)
            writer.list(item.value.elements) { $0.element($1) }
        }
    }

    /// Writes a text or a reference, of a path or of a value.
    private mutating func element(_ value: ParameterValue.Element) {
        switch value {
        case .text(let text):
            byte(0)
            self.text(text)
        case .reference(let reference):
            byte(1)
            self.reference(reference)
        }
    }

    private mutating func policy(_ value: QueueingStrategy.RetryPolicy) {
        func codes(_ codes: [Int]) { list(codes) { $0.number(UInt64(bitPattern: Int64($1))) } }
        switch value {
        case .onNetworkInterrupt: byte(0)
        case .onRequestTimeout: byte(1)
        case .onTransientStatus: byte(2)
        case .onCustomErrorCodes(let list):
            byte(3)
            codes(list)
        case .onAllErrorCodesExcept(let list):
            byte(4)
            codes(list)
        }
    }

    private mutating func json(_ value: JSONValue) {
        switch value {
        case .null: byte(0)
        case .bool(let value): byte(value ? 2 : 1)
        case .number(let digits):
            byte(3)
            text(digits)
        case .string(let value):
            byte(4)
            text(value)
        case .reference(let value):
            byte(5)
            reference(value)
        case .array(let values):
            byte(6)
            list(values) { $0.json($1) }
        case .object(let members):
            byte(7)
            list(members) { writer, member in
                writer.text(member.name)
                writer.json(member.value)
            }
        }
    }
}
