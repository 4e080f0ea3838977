// Envelopes of requests and replies. An envelope begins with four bytes that name its serializer, so both sides may use
// different defaults.

package import Foundation
import TransportCodec

/// How envelopes are written.
public enum Serializer: String, Sendable, Hashable, CaseIterable {
    /// JSON, readable for people.
    case json
    /// The same data model in CBOR (RFC 8949), shorter. Numbers beyond 64 bits, such as a long `Decimal`, are rounded to
    /// doubles.
    case cbor

    /// Bytes of the marker.
    static let markerSize = 4

    /// Marker and value.
    package func data(_ value: some Encodable) -> Result<Data, TesseractError> {
        do {
            let json = try JSONEncoder().encode(value)
            var data = Data(rawValue.utf8)
            switch self {
            case .json: data.append(json)
            case .cbor: data.append(contentsOf: try JSONDecoder().decode(CBORValue.self, from: json).bytes)
            }
            return .success(data)
        } catch {
            return .failure(.serialization(reason: "the value cannot be written as \(rawValue): \(Self.words(error))"))
        }
    }

    /// Reads a value behind a marker.
    package static func value<Value: Decodable>(_ type: Value.Type, in data: Data) -> Result<Value, TesseractError> {
        switch serializer(of: data) {
        case .failure(let error): return .failure(error)
        case .success(let serializer):
            do {
                return .success(try JSONDecoder().decode(type, from: try serializer.json(data)))
            } catch {
                return .failure(
                    .serialization(reason: "no \(serializer.rawValue) of the expected form: \(words(error))"))
            }
        }
    }

    /// The serializer that an envelope names.
    package static func serializer(of data: Data) -> Result<Serializer, TesseractError> {
        guard data.count >= markerSize else {
            return .failure(.serialization(reason: "\(data.count) bytes are no envelope"))
        }
        guard let serializer = allCases.first(where: { $0.rawValue.utf8.elementsEqual(data.prefix(markerSize)) }) else {
            return .failure(.serialization(reason: "the envelope begins with neither json nor cbor"))
        }
        return .success(serializer)
    }

    private func json(_ data: Data) throws -> Data {
        let body = data.dropFirst(Self.markerSize)
        switch self {
        case .json: return Data(body)
        case .cbor: return try JSONEncoder().encode(try CBORValue([UInt8](body)))
        }
    }

    /// What failed, without the values of the message.
    private static func words(_ error: any Error) -> String {
        switch error {
        case let error as CBORError: return "\(error)"
        case DecodingError.keyNotFound(let key, _): return "'\(key.stringValue)' is missing"
        case DecodingError.typeMismatch(_, let context), DecodingError.valueNotFound(_, let context):
            return "'\(context.codingPath.map(\.stringValue).joined(separator: "."))' has another type"
        case is DecodingError: return "it is corrupted"
        default: return "it cannot be represented"
        }
    }
}

/// The head of a request: what a service reads before it knows the type of the request.
package struct RequestHead: Codable, Sendable {
    package var proto: ProtocolID
    package var method: String
    package var id: UInt64

    package init(proto: ProtocolID, method: String, id: UInt64) {
        (self.proto, self.method, self.id) = (proto, method, id)
    }

    private enum CodingKeys: String, CodingKey {
        case proto = "protocol"
        case method, id
    }
}

/// A request to a service, `{"protocol", "method", "id", "request"}`.
package struct RequestEnvelope<Request> {
    package var head: RequestHead
    package var request: Request

    package init(head: RequestHead, request: Request) { (self.head, self.request) = (head, request) }

    fileprivate enum CodingKeys: String, CodingKey { case request }
}

extension RequestEnvelope: Encodable where Request: Encodable {
    package func encode(to encoder: any Encoder) throws {
        try head.encode(to: encoder)
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(request, forKey: .request)
    }
}

extension RequestEnvelope: Decodable where Request: Decodable {
    package init(from decoder: any Decoder) throws {
        head = try RequestHead(from: decoder)
        request = try decoder.container(keyedBy: CodingKeys.self).decode(Request.self, forKey: .request)
    }
}

/// A service's reply: `{"id", "response": {"status": "ok", "value"}}` or `{"status": "error", "code", "reason"}`.
package struct ReplyEnvelope<Value> {
    /// The id of the request; nil if the service could not read it.
    package var id: UInt64?
    package var result: Result<Value, TesseractError>

    package init(id: UInt64?, result: Result<Value, TesseractError>) { (self.id, self.result) = (id, result) }
}

private enum ReplyKey: String, CodingKey { case id, response }
private enum ResponseKey: String, CodingKey { case status, value, code, reason }

extension ReplyEnvelope: Encodable where Value: Encodable {
    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: ReplyKey.self)
        try container.encode(id, forKey: .id)
        var response = container.nestedContainer(keyedBy: ResponseKey.self, forKey: .response)
        switch result {
        case .success(let value):
            try response.encode("ok", forKey: .status)
            try response.encode(value, forKey: .value)
        case .failure(let error):
            try response.encode("error", forKey: .status)
            try response.encode(error.code, forKey: .code)
            try response.encode(error.reason, forKey: .reason)
        }
    }
}

extension ReplyEnvelope: Decodable where Value: Decodable {
    package init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: ReplyKey.self)
        id = try container.decodeIfPresent(UInt64.self, forKey: .id)
        let response = try container.nestedContainer(keyedBy: ResponseKey.self, forKey: .response)
        switch try response.decode(String.self, forKey: .status) {
        case "ok": result = .success(try response.decode(Value.self, forKey: .value))
        case "error":
            result = .failure(
                TesseractError(
                    code: try response.decode(Int32.self, forKey: .code),
                    reason: try response.decode(String.self, forKey: .reason)))
        default:
            throw DecodingError.dataCorruptedError(forKey: .status, in: response, debugDescription: "unknown status")
        }
    }
}

/// The id of a reply, whatever its value is.
package struct ReplyHead: Decodable, Sendable {
    package var id: UInt64?
}
