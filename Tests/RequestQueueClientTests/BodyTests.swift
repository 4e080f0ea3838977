import Foundation
import RequestQueue
import RequestQueueClient
import Testing

/// Bodies from an application's own types.
@Suite struct BodyTests {
    private struct Message: Codable, Equatable {
        struct Reaction: Codable, Equatable {
            var to: EntityReference
            var at: Date
        }
        var text: String
        var room: EntityReference
        var reactions: [Reaction] = []
        var amount: Decimal?
    }

    private let room = EntityReference(type: "room", local: "r")
    private let message = EntityReference(type: "message", local: "m")

    private func bytes(_ body: RequestBody, _ names: [EntityReference: String]) throws -> String {
        let config = APIRequestConfig(method: .post, path: "/", body: body)
        return String(decoding: try config.resolved { names[$0] }.body, as: UTF8.self)
    }

    /// Wherever a value names an entity, the request waits for its remote identifier and is sent with that.
    @Test func referencesInsideAValueAreResolvedWhenItIsSent() throws {
        let value = Message(
            text: "é\"\n", room: room, reactions: [.init(to: message, at: Date(timeIntervalSinceReferenceDate: 1))])
        let body = try RequestBody.json(encoding: value)
        let config = APIRequestConfig(method: .post, path: "/", body: body)
        #expect(Set(config.references) == [room, message])
        #expect(throws: UnresolvedReference.self) { try bytes(body, [room: "1"]) }
        #expect(
            try bytes(body, [room: "1", message: "2"])
                == #"{"reactions":[{"at":1,"to":"2"}],"room":"1","text":"é\"\u000A"}"#)
    }

    @Test func theApplicationsCodersAreUsed() throws {
        let coders = APIJSONCoderConfig(
            decoder: {
                let decoder = JSONDecoder()
                decoder.dateDecodingStrategy = .iso8601
                return decoder
            },
            encoder: {
                let encoder = JSONEncoder()
                encoder.dateEncodingStrategy = .iso8601
                encoder.keyEncodingStrategy = .convertToSnakeCase
                encoder.outputFormatting = [.prettyPrinted]
                return encoder
            })
        struct Event: Codable, Equatable {
            var startsAt: Date
        }
        let event = Event(startsAt: Date(timeIntervalSince1970: 0))
        #expect(try bytes(.json(encoding: event, with: coders), [:]) == #"{"starts_at":"1970-01-01T00:00:00Z"}"#)
        let response = APIClientResponse(
            data: Data(#"{"startsAt":"1970-01-01T00:00:00Z"}"#.utf8), status: 200, headers: [],
            jsonCoderConfig: coders)
        #expect(try response.decoded(as: Event.self) == event)
        #expect(throws: DecodingError.self) { try response.decoded(as: Message.self) }
    }

    /// The same value under the same idempotency key is the same request, in each process.
    @Test func aValueHasTheSameBytesEachTime() throws {
        struct Many: Encodable {
            let names = Dictionary(uniqueKeysWithValues: (0..<50).map { ("name \($0)", $0) })
        }
        let first = try RequestBody.json(encoding: Many())
        for _ in 0..<20 { #expect(try RequestBody.json(encoding: Many()) == first) }
    }

    @Test func digitsAreKept() throws {
        var value = Message(text: "", room: room)
        value.amount = Decimal(string: "12345678901234567890.125")
        #expect(
            try bytes(.json(encoding: value), [room: "1"])
                == #"{"amount":12345678901234567890.125,"reactions":[],"room":"1","text":""}"#)
        for scalar in [0, .max, .min] { #expect(try bytes(.json(encoding: scalar), [:]) == "\(scalar)") }
    }

    /// A reference outside of a body is stored as it is, as in the data for handlers.
    @Test func aReferenceAloneIsAnObject() throws {
        let data = try JSONEncoder().encode(Message(text: "x", room: room))
        #expect(try JSONDecoder().decode(Message.self, from: data) == Message(text: "x", room: room))
    }

    @Test func whatCannotBeEncodedThrows() {
        #expect(throws: EncodingError.self) { try RequestBody.json(encoding: Double.nan) }
        struct Nested: Encodable {
            var depth: Int
            func encode(to encoder: any Encoder) throws {
                var container = encoder.unkeyedContainer()
                if depth > 1 { try container.encode(Nested(depth: depth - 1)) }
            }
        }
        #expect(throws: Never.self) { try RequestBody.json(encoding: Nested(depth: JSONValue.maximumDepth)) }
        #expect(throws: JSONValue.Malformed.self) {
            try RequestBody.json(encoding: Nested(depth: JSONValue.maximumDepth + 1))
        }
    }
}
