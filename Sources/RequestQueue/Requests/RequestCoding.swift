// Requests as `Codable` values, for an application's own configuration files and stores. The queue's own store has
// another form, see ``RequestForm``.
//
//     {"method": "PUT", "path": ["/messages/", {"type": "message", "local": "7"}],
//      "query": [{"name": "tag", "value": ["a", "b"]}], "body": {"json": {"object": [{"name": "n", "value": {"number": "1"}}]}}}
//
// A text is a string; a reference is an object with `type` and `local`. Members that are left out have the defaults of
// ``APIRequestConfig/init(method:path:host:query:headers:body:includeSessionKey:timeoutInterval:deduplicate:tag:queueingStrategy:background:)``.

extension DecodingError {
    fileprivate init(_ text: String, _ decoder: any Decoder) {
        self = .dataCorrupted(.init(codingPath: decoder.codingPath, debugDescription: text))
    }
}

/// As its name on the wire.
extension HTTPMethod: Codable {
    /// From the name on the wire.
    public init(from decoder: any Decoder) throws {
        let name = try decoder.singleValueContainer().decode(String.self)
        guard let method = Self.allCases.first(where: { $0.name == name }) else {
            throw DecodingError("\(name) is no method of a request", decoder)
        }
        self = method
    }

    /// As the name on the wire.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(name)
    }
}

/// As its hexadecimal digits.
extension RequestToken: Codable {
    /// From hexadecimal digits.
    public init(from decoder: any Decoder) throws {
        let text = try decoder.singleValueContainer().decode(String.self)
        guard let token = RequestToken(text) else { throw DecodingError("not the token of a request", decoder) }
        self = token
    }

    /// As hexadecimal digits.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(description)
    }
}

/// As an object with `type` and `local`; in the body of a request, as the remote identifier.
extension EntityReference: Codable {
    private enum CodingKeys: CodingKey {
        case type, local
    }

    /// From an object with `type` and `local`.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        try self.init(
            type: container.decode(String.self, forKey: .type), local: container.decode(String.self, forKey: .local))
    }

    /// As an object with `type` and `local`. In a body for the queue it becomes a mark, which stands for the remote
    /// identifier until the request is sent.
    public func encode(to encoder: any Encoder) throws {
        if let marks = encoder.userInfo[ReferenceMarks.key] as? ReferenceMarks {
            var container = encoder.singleValueContainer()
            return try container.encode(marks.mark(self))
        }
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(type, forKey: .type)
        try container.encode(local, forKey: .local)
    }
}

/// As an object with `type`, and `local` or `remote` or both.
extension EntityIdentifier: Codable {
    private enum CodingKeys: CodingKey {
        case type, local, remote
    }

    /// From an object with `type`, and `local` or `remote` or both.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        let type = try container.decode(String.self, forKey: .type)
        switch try (
            container.decodeIfPresent(String.self, forKey: .local),
            container.decodeIfPresent(String.self, forKey: .remote)
        ) {
        case (let local?, let remote?): self = .both(type: type, local: local, remote: remote)
        case (let local?, nil): self = .local(type: type, local)
        case (nil, let remote?): self = .remote(type: type, remote)
        case (nil, nil): throw DecodingError("the entity has neither a local nor a remote identifier", decoder)
        }
    }

    /// As an object with `type`, and `local` or `remote` or both.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(type, forKey: .type)
        try container.encodeIfPresent(local, forKey: .local)
        try container.encodeIfPresent(remote, forKey: .remote)
    }
}

/// As a string if it is one text; else as an array of texts, references, and objects with `raw`.
extension APIRequestPath: Codable {
    /// From a string or an array.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if let text = try? container.decode(String.self) {
            self.init([.text(text)])
        } else {
            self.init(try container.decode([Segment].self))
        }
    }

    /// As a string or an array.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        if segments.isEmpty { return try container.encode("") }
        if segments.count == 1, case .text(let text) = segments[0] { return try container.encode(text) }
        try container.encode(segments)
    }
}

/// As a text, a reference, or an object with `raw`.
extension APIRequestPath.Segment: Codable {
    private enum CodingKeys: CodingKey {
        case raw
    }

    /// From a text, a reference, or an object with `raw`.
    public init(from decoder: any Decoder) throws {
        if let text = try? decoder.singleValueContainer().decode(String.self) {
            self = .text(text)
        } else if let raw = try decoder.container(keyedBy: CodingKeys.self).decodeIfPresent(String.self, forKey: .raw) {
            self = .raw(raw)
        } else {
            self = .reference(try EntityReference(from: decoder))
        }
    }

    /// As a text, a reference, or an object with `raw`.
    public func encode(to encoder: any Encoder) throws {
        switch self {
        case .text(let text): try text.encode(to: encoder)
        case .reference(let reference): try reference.encode(to: encoder)
        case .raw(let text):
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(text, forKey: .raw)
        }
    }
}

/// As an array of names with their values, which keeps their order.
extension Parameters: Codable {
    /// From an array of names with their values.
    public init(from decoder: any Decoder) throws {
        self.init(try decoder.singleValueContainer().decode([Item].self))
    }

    /// As an array of names with their values.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(items)
    }
}

/// As a text or a reference; a list as an array of them.
extension ParameterValue: Codable {
    /// From a text, a reference, or an array of them.
    public init(from decoder: any Decoder) throws {
        if let elements = try? decoder.singleValueContainer().decode([Element].self) {
            self = .list(elements)
        } else {
            switch try Element(from: decoder) {
            case .text(let text): self = .text(text)
            case .reference(let reference): self = .reference(reference)
            }
        }
    }

    /// As a text, a reference, or an array of them.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .text(let text): try container.encode(text)
        case .reference(let reference): try container.encode(reference)
        case .list(let elements): try container.encode(elements)
        }
    }
}

/// As a text or a reference.
extension ParameterValue.Element: Codable {
    /// From a text or a reference.
    public init(from decoder: any Decoder) throws {
        if let text = try? decoder.singleValueContainer().decode(String.self) {
            self = .text(text)
        } else {
            self = .reference(try EntityReference(from: decoder))
        }
    }

    /// As a text or a reference.
    public func encode(to encoder: any Encoder) throws {
        switch self {
        case .text(let text): try text.encode(to: encoder)
        case .reference(let reference): try reference.encode(to: encoder)
        }
    }
}

/// As an object with `rawData`, `formURLEncoded` or `json`. Raw data that is UTF-8 is a string, other data an array.
extension RequestBody: Codable {
    private enum CodingKeys: CodingKey {
        case rawData, formURLEncoded, json
    }

    /// From an object with one of the three members.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        guard container.allKeys.count == 1, let key = container.allKeys.first else {
            throw DecodingError("a body has one of rawData, formURLEncoded and json", decoder)
        }
        switch key {
        case .rawData:
            if let text = try? container.decode(String.self, forKey: key) {
                self = .rawData(Array(text.utf8))
            } else {
                self = .rawData(try container.decode([UInt8].self, forKey: key))
            }
        case .formURLEncoded: self = .formURLEncoded(try container.decode(Parameters.self, forKey: key))
        case .json:
            let value = try container.decode(JSONValue.self, forKey: key)
            guard value.isShallow() else {
                throw DecodingError("the JSON is nested more than \(JSONValue.maximumDepth) times", decoder)
            }
            self = .json(value)
        }
    }

    /// As an object with one of the three members.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        switch self {
        case .rawData(let data):
            if let text = String(validating: data, as: UTF8.self) {
                try container.encode(text, forKey: .rawData)
            } else {
                try container.encode(data, forKey: .rawData)
            }
        case .formURLEncoded(let form): try container.encode(form, forKey: .formURLEncoded)
        case .json(let value): try container.encode(value, forKey: .json)
        }
    }
}

/// Null, booleans, strings and arrays as they are; other values as objects with `number`, `reference` or `object`, so
/// that digits and the order of members are kept.
extension JSONValue: Codable {
    private enum CodingKeys: CodingKey {
        case number, reference, object
    }

    /// From its parts. A number must have the form of RFC 8259 section 6.
    public init(from decoder: any Decoder) throws {
        // Three keys for each level of objects, and some around the document.
        guard decoder.codingPath.count <= 4 * Self.maximumDepth else {
            throw DecodingError("the JSON is nested more than \(Self.maximumDepth) times", decoder)
        }
        let single = try decoder.singleValueContainer()
        if single.decodeNil() {
            self = .null
        } else if let bool = try? single.decode(Bool.self) {
            self = .bool(bool)
        } else if let text = try? single.decode(String.self) {
            self = .string(text)
        } else if let container = try? decoder.container(keyedBy: CodingKeys.self) {
            guard container.allKeys.count == 1, let key = container.allKeys.first else {
                throw DecodingError("an object has one of number, reference and object", decoder)
            }
            switch key {
            case .number:
                let digits = try container.decode(String.self, forKey: key)
                guard RequestFlaw.isNumber(Array(digits.utf8)) else { throw DecodingError("not a number", decoder) }
                self = .number(digits)
            case .reference: self = .reference(try container.decode(EntityReference.self, forKey: key))
            case .object: self = .object(try container.decode([Member].self, forKey: key))
            }
        } else {
            self = .array(try single.decode([JSONValue].self))
        }
    }

    /// As its parts.
    public func encode(to encoder: any Encoder) throws {
        switch self {
        case .null:
            var container = encoder.singleValueContainer()
            try container.encodeNil()
        case .bool(let bool): try bool.encode(to: encoder)
        case .string(let text): try text.encode(to: encoder)
        case .array(let values): try values.encode(to: encoder)
        case .number(let digits):
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(digits, forKey: .number)
        case .reference(let reference):
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(reference, forKey: .reference)
        case .object(let members):
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(members, forKey: .object)
        }
    }
}

/// As its name.
extension QueueingStrategy.Synchronization: Codable {
    /// From its name.
    public init(from decoder: any Decoder) throws {
        switch try decoder.singleValueContainer().decode(String.self) {
        case "concurrent": self = .concurrent
        case "barrier": self = .barrier
        case let name: throw DecodingError("\(name) is no synchronization", decoder)
        }
    }

    /// As its name.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(self == .barrier ? "barrier" : "concurrent")
    }
}

/// As its name, or as an object from the name to the codes.
extension QueueingStrategy.RetryPolicy: Codable {
    private enum CodingKeys: CodingKey {
        case onCustomErrorCodes, onAllErrorCodesExcept
    }

    /// From its name, or an object from the name to the codes.
    public init(from decoder: any Decoder) throws {
        if let name = try? decoder.singleValueContainer().decode(String.self) {
            switch name {
            case "onNetworkInterrupt": self = .onNetworkInterrupt
            case "onRequestTimeout": self = .onRequestTimeout
            case "onTransientStatus": self = .onTransientStatus
            default: throw DecodingError("\(name) is no retry policy", decoder)
            }
            return
        }
        let container = try decoder.container(keyedBy: CodingKeys.self)
        guard container.allKeys.count == 1, let key = container.allKeys.first else {
            throw DecodingError("a retry policy has one name", decoder)
        }
        let codes = try container.decode([Int].self, forKey: key)
        switch key {
        case .onCustomErrorCodes: self = .onCustomErrorCodes(codes)
        case .onAllErrorCodesExcept: self = .onAllErrorCodesExcept(codes)
        }
    }

    /// As its name, or as an object from the name to the codes.
    public func encode(to encoder: any Encoder) throws {
        switch self {
        case .onNetworkInterrupt: try "onNetworkInterrupt".encode(to: encoder)
        case .onRequestTimeout: try "onRequestTimeout".encode(to: encoder)
        case .onTransientStatus: try "onTransientStatus".encode(to: encoder)
        case .onCustomErrorCodes(let codes):
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(codes, forKey: .onCustomErrorCodes)
        case .onAllErrorCodesExcept(let codes):
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(codes, forKey: .onAllErrorCodesExcept)
        }
    }
}

/// All attributes are written, so that a stored request keeps its meaning if a default changes.
extension APIRequestConfig: Codable {
    private enum CodingKeys: CodingKey {
        case method, path, host, query, headers, body, includeSessionKey, timeoutInterval, deduplicate, tag
        case queueingStrategy, background
    }

    /// From an object. Only `path` is required.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        func value<Value: Decodable>(_ key: CodingKeys) throws -> Value? {
            try container.decodeIfPresent(Value.self, forKey: key)
        }
        try self.init(
            method: value(.method) ?? .get, path: container.decode(APIRequestPath.self, forKey: .path),
            host: value(.host), query: value(.query) ?? [:], headers: value(.headers) ?? [:], body: value(.body),
            includeSessionKey: value(.includeSessionKey) ?? true, timeoutInterval: value(.timeoutInterval),
            deduplicate: value(.deduplicate), tag: value(.tag), queueingStrategy: value(.queueingStrategy),
            background: value(.background))
    }

    /// As an object with all attributes, apart from those that are nil.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(method, forKey: .method)
        try container.encode(path, forKey: .path)
        try container.encodeIfPresent(host, forKey: .host)
        try container.encode(query, forKey: .query)
        try container.encode(headers, forKey: .headers)
        try container.encodeIfPresent(body, forKey: .body)
        try container.encode(includeSessionKey, forKey: .includeSessionKey)
        try container.encodeIfPresent(timeoutInterval, forKey: .timeoutInterval)
        try container.encode(deduplicate, forKey: .deduplicate)
        try container.encodeIfPresent(tag, forKey: .tag)
        try container.encode(queueingStrategy, forKey: .queueingStrategy)
        try container.encode(background, forKey: .background)
    }
}
