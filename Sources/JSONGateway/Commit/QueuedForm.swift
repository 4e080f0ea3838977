// A write of an exchange in the form that the queue stores.

import HTTPCodec
import JSONCodec
import NIOCore
import Protection
package import RequestQueue

extension QueuedWrite {
    /// Messages are the only entities.
    fileprivate static func message(_ local: String) -> EntityReference {
        EntityReference(type: "message", local: local)
    }

    /// Converts the write to a request of the queue.
    ///
    /// - Parameters:
    ///   - mark: the mark of the credential to send it with.
    ///   - creates: the local ids of the messages that it creates.
    ///   - token: names the write.
    ///   - connection: the client's.
    /// - Returns: nil if the queue does not support the method.
    /// - Throws: ``MessageFault`` if the body refers to a message without a backend id and cannot be written anew.
    func request(
        mark: String, creates: [String], token: RequestToken, connection: ConnectionID
    ) throws(MessageFault) -> NewRequest? {
        if frame != nil { return message(mark: mark, creates: creates, token: token, connection: connection) }
        guard let method = HTTPMethod.allCases.first(where: { $0.name == head.method }) else { return nil }
        var config = APIRequestConfig(method: method, path: APIRequestPath(segments))
        config.headers = Parameters(head.headers.fields.map { .init(name: $0.name, value: .text($0.value)) })
        config.body = try queuedBody()
        config.deduplicate = false
        return NewRequest(
            config, tenant: account.text, lane: lane, creates: creates.map(Self.message),
            identifiers: remoteID?.stored, idempotencyKey: key?.name, metadata: Array(mark.utf8))
    }

    /// Converts a WebSocket message, which is sent with the login of its connection.
    private func message(
        mark: String, creates: [String], token: RequestToken, connection: ConnectionID
    ) -> NewRequest {
        var config = APIRequestConfig(method: .post, path: APIRequestPath([.raw("/")]))
        config.host = SocketWrites.host(of: account.text)
        config.headers = Parameters([
            .init(name: SocketWrites.field, value: .text(SocketWrites.fieldValue(connection, token, account)))
        ])
        config.body = .rawData(Array(body.readableBytesView))
        (config.includeSessionKey, config.deduplicate) = (false, false)
        return NewRequest(
            config, tenant: account.text, lane: lane, creates: creates.map(Self.message),
            identifiers: remoteID?.stored, idempotencyKey: key?.name, metadata: Array(mark.utf8))
    }

    /// The target, split at references to messages that may not have a backend id yet.
    private var segments: [APIRequestPath.Segment] {
        var locals: [Int: String] = [:]
        for reference in references {
            if case .segment(let index) = reference.place { locals[index] = reference.local }
        }
        guard !locals.isEmpty else { return [.raw(head.target)] }
        var segments: [APIRequestPath.Segment] = []
        for (index, segment) in head.path.dropFirst().split(separator: "/", omittingEmptySubsequences: false)
            .enumerated()
        {
            segments.append(.raw("/"))
            segments.append(locals[index].map { .reference(Self.message($0)) } ?? .raw(String(segment)))
        }
        if let query = head.query { segments.append(.raw("?" + query)) }
        return segments
    }

    /// The body: JSON with references if it has any, else the unchanged bytes.
    ///
    /// A body whose reference cannot be replaced is never sent: the backend would get the gateway's own id of a message.
    private func queuedBody() throws(MessageFault) -> RequestBody? {
        guard body.readableBytes > 0 else { return nil }
        let named = references.compactMap { reference in
            if case .body(let path) = reference.place { (path, reference.local) } else { nil }
        }
        guard !named.isEmpty else { return .rawData(Array(body.readableBytesView)) }
        guard let document = try? JSONDocument(body) else { throw .noMessage }
        var locals: [JSONPlace: String] = [:]
        for (path, local) in named {
            guard let place = try? document.one(path) else { throw .noMessage }
            locals[place] = local
        }
        return .json(try JSONValue(document, document.root, locals))
    }
}

extension JSONValue {
    /// Converts a value of a document, with references at some places.
    ///
    /// - Throws: ``MessageFault/loneSurrogate(at:)`` if a string in it is not valid Unicode.
    fileprivate init(
        _ document: JSONDocument, _ place: JSONPlace, _ locals: [JSONPlace: String]
    ) throws(MessageFault) {
        if let local = locals[place] {
            self = .reference(EntityReference(type: "message", local: local))
            return
        }
        switch document.kind(place) {
        case .null: self = .null
        case .boolean: self = .bool(document.boolean(place) ?? false)
        case .number: self = .number(document.numberText(place) ?? "0")
        case .string:
            guard let text = try? document.text(place) else {
                throw .loneSurrogate(at: document.range(place).lowerBound)
            }
            self = .string(text)
        case .array:
            var elements: [JSONValue] = []
            for child in document.children(place) { elements.append(try JSONValue(document, child, locals)) }
            self = .array(elements)
        case .object:
            var members: [JSONValue.Member] = []
            for child in document.children(place) {
                guard let name = try? document.name(child) else {
                    throw .loneSurrogate(at: document.range(child).lowerBound)
                }
                members.append(Member(name, try JSONValue(document, child, locals)))
            }
            self = .object(members)
        }
    }
}

extension QueuedRequest {
    /// The header field that held the mark of the credential in requests that were stored without metadata.
    package static let markField = "pawl-credential"

    /// The mark of the credential that came with the write; nil if there is none.
    package var mark: String? {
        if let metadata { return String(decoding: metadata, as: UTF8.self) }
        for item in config.headers.items where item.name == Self.markField {
            if case .text(let mark) = item.value { return mark }
        }
        return nil
    }

    /// Whether its client gave no idempotency key, so that the client cannot repeat the write.
    package var isAnonymous: Bool { idempotencyKey == token.description }
}
