import Foundation
import TestKit
import Testing

@testable import RequestQueue

/// Requests as `Codable` values, and JSON as values.
@Suite struct CodingTests {
    private func encoded(_ value: some Encodable) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return String(decoding: try encoder.encode(value), as: UTF8.self)
    }

    private func decoded<Value: Decodable>(_ text: String, as type: Value.Type = Value.self) throws -> Value {
        try JSONDecoder().decode(type, from: Data(text.utf8))
    }

    @Test func everyAttributeIsKept() throws {
        for body: RequestBody? in [
            nil, .rawData([]), .rawData([0, 255]), .rawData(Array("é".utf8)),
            .formURLEncoded(["a": .reference(message)]),
            AttributeTests.everything.body,
        ] {
            var config = AttributeTests.everything
            config.body = body
            #expect(try decoded(encoded(config)) == config)
        }
        for method in HTTPMethod.allCases {
            let config = APIRequestConfig(method: method, path: .raw("/a?b=%2F"))
            #expect(try decoded(encoded(config)) == config)
        }
        for path: APIRequestPath in ["", "/a", "/a/\(message)/b", "\(message)"] {
            #expect(try decoded(encoded(path)) == path)
        }
    }

    /// The form that applications have in their files.
    @Test func theFormStaysAsItIs() throws {
        let config = APIRequestConfig(
            method: .put, path: "/messages/\(message)", query: ["tag": .list([.text("a"), .reference(message)])],
            headers: ["X-A": "b"],
            body: .json(["n": .number("1.50"), "of": .reference(message), "none": nil, "l": [true]]),
            timeoutInterval: 1500, tag: "edit",
            queueingStrategy: .init(
                synchronization: .barrier, retryPolicy: [.onNetworkInterrupt, .onCustomErrorCodes([418])]))
        let golden = #"""
            {"background":true,"body":{"json":{"object":[{"name":"n","value":{"number":"1.50"}},\#
            {"name":"of","value":{"reference":{"local":"L1","type":"message"}}},{"name":"none","value":null},{"name":"l","value":[true]}]}},\#
            "deduplicate":true,\#
            "headers":[{"name":"X-A","value":"b"}],\#
            "includeSessionKey":true,"method":"PUT","path":["/messages/",{"local":"L1","type":"message"}],"query":[{"name":"tag","value":["a",{"local":"L1","type":"message"}]}],\#
            "queueingStrategy":{"retryPolicy":["onNetworkInterrupt",{"onCustomErrorCodes":[418]}],"synchronization":"barrier"},"tag":"edit","timeoutInterval":1500}
            """#
        let text = try encoded(config)
        #expect(text == golden)
        #expect(try decoded(golden) == config)
    }

    @Test func whatIsLeftOutHasTheDefaults() throws {
        #expect(try decoded(#"{"path":"/a"}"#) == APIRequestConfig(path: "/a"))
        #expect(try decoded(#"{"path":"/a","method":"POST"}"#) == APIRequestConfig(method: .post, path: "/a"))
    }

    @Test(arguments: [
        "{}", #"{"path":1}"#, #"{"path":"/","method":"post"}"#, #"{"path":"/","method":2}"#,
        #"{"path":"/","body":{}}"#, #"{"path":"/","body":{"rawData":"a","json":null}}"#,
        #"{"path":"/","body":{"rawData":[256]}}"#, #"{"path":"/","body":{"json":{"number":"01"}}}"#,
        #"{"path":"/","body":{"json":{}}}"#, #"{"path":["/",{"type":"m"}]}"#, #"{"path":"/","query":{"a":"b"}}"#,
        #"{"path":"/","queueingStrategy":{"synchronization":"both","retryPolicy":[]}}"#,
        #"{"path":"/","queueingStrategy":{"synchronization":"barrier","retryPolicy":["always"]}}"#,
    ]) func otherFormsAreRefused(_ text: String) {
        #expect(throws: DecodingError.self) { try decoded(text, as: APIRequestConfig.self) }
    }

    @Test func nestingIsBounded() throws {
        func nested(_ depth: Int) -> JSONValue { (0..<depth).reduce(.null) { value, _ in .array([value]) } }
        func objects(_ depth: Int) -> JSONValue { (0..<depth).reduce(.null) { value, _ in ["a": value] } }
        for make in [nested, objects] {
            let deep = RequestBody.json(make(JSONValue.maximumDepth))
            #expect(try decoded(encoded(deep)) == deep)
            let tooDeep = try encoded(RequestBody.json(make(JSONValue.maximumDepth + 1)))
            #expect(throws: DecodingError.self) { try decoded(tooDeep, as: RequestBody.self) }
        }
    }

    @Test func namesOfEntitiesAndRequests() throws {
        for identifier: EntityIdentifier in [
            .local(type: "m", "1"), .remote(type: "m", "42"), .both(type: "m", local: "1", remote: "42"),
        ] { #expect(try decoded(encoded(identifier)) == identifier) }
        #expect(
            try encoded(EntityIdentifier.both(type: "m", local: "1", remote: "42"))
                == #"{"local":"1","remote":"42","type":"m"}"#)
        #expect(throws: DecodingError.self) { try decoded(#"{"type":"m"}"#, as: EntityIdentifier.self) }
        #expect(try decoded(encoded(message)) == message)
        let token = RequestToken(high: 1, low: .max)
        #expect(try encoded(token) == #""0000000000000001ffffffffffffffff""#)
        #expect(try decoded(encoded(token)) == token)
        #expect(throws: DecodingError.self) { try decoded(#""1""#, as: RequestToken.self) }
    }

    // MARK: Marks

    /// A text of the application's own that looks like a mark stays a text.
    @Test func onlyMarksBecomeReferences() {
        let marks = ReferenceMarks(nonce: RequestToken(high: 1, low: 2))
        let mark = marks.mark(message)
        let other = ReferenceMarks(nonce: RequestToken(high: 1, low: 3)).mark(message)
        let value: JSONValue = [
            "a": [.string(mark), .string(other), .string(mark + "0"), .string(String(mark.dropLast())), 1],
            "b": ["c": .string(mark)],
        ]
        #expect(
            marks.resolve(value) == [
                "a": [
                    .reference(message), .string(other), .string(mark + "0"), .string(String(mark.dropLast())), 1,
                ], "b": ["c": .reference(message)],
            ])
    }

    // MARK: Reading JSON

    private static let document = #"""
         {"a": [1, -0.5e+3, 12345678901234567890.10, true, false, null], "é": "\u00e9\ud83d\ude00\/\b\f\n\r\t\"\\", "": {}, "a": []}
        """#

    @Test func documentsAreReadAsTheyAre() throws {
        let value: JSONValue = [
            "a": [1, .number("-0.5e+3"), .number("12345678901234567890.10"), true, false, nil],
            "é": "é😀/\u{8}\u{c}\n\r\t\"\\", "": .object([]), "a": [],
        ]
        #expect(try JSONValue(parsing: Array(Self.document.utf8)) == value)
        for scalar: JSONValue in [1, "x", true, nil, .array([])] {
            let text = try APIRequestConfig(path: "/", body: .json(scalar)).resolved { _ in nil }.body
            #expect(try JSONValue(parsing: text) == scalar)
        }
    }

    @Test func noBeginningIsADocument() {
        let bytes = Array(Self.document.trimmingCharacters(in: .whitespaces).utf8)
        for count in 0..<bytes.count {
            #expect(throws: JSONValue.Malformed.self) { try JSONValue(parsing: Array(bytes.prefix(count))) }
        }
    }

    @Test(arguments: [
        "", " ", "nul", "nulll", "tru", "01", "1.", "-", "1e", "+1", ".5", "\"", "\"\u{1}\"", #""\x""#, #""\u12""#,
        #""\ud800""#, #""\ud800\n""#, #""\ud800\u0041""#, #""\udc00""#, "[", "[1", "[1,", "[1,]", "[,]", "{", "{\"a\"",
        "{\"a\":", "{\"a\":1", "{\"a\":1,", "{\"a\":1,}", "{1:1}", "{a:1}", "1 2", "[1]]", "'a'", "//", "\u{FEFF}1",
    ]) func otherTextsAreRefused(_ text: String) {
        #expect(throws: JSONValue.Malformed.self) { try JSONValue(parsing: Array(text.utf8)) }
    }

    @Test func bytesThatAreNoTextAreRefused() {
        for bytes: [UInt8] in [[0xFF], [0x22, 0xFF, 0x22], [0x22, 0xC0, 0x80, 0x22], [0x22, 0xED, 0xA0, 0x80, 0x22]] {
            #expect(throws: JSONValue.Malformed.self) { try JSONValue(parsing: bytes) }
        }
    }

    @Test(arguments: ["[", "{\"a\":"]) func deepDocumentsAreRefused(_ opening: String) throws {
        let closing = opening == "[" ? "]" : "}"
        func document(_ depth: Int) -> [UInt8] {
            Array((String(repeating: opening, count: depth) + "1" + String(repeating: closing, count: depth)).utf8)
        }
        _ = try JSONValue(parsing: document(JSONValue.maximumDepth))
        for depth in [JSONValue.maximumDepth + 1, 1_000_000] {
            #expect(throws: JSONValue.Malformed.self) { try JSONValue(parsing: document(depth)) }
        }
    }

    /// Whatever is read is written and read again as the same.
    @Test func anyBytesAreSafe() throws {
        var random = SeededGenerator(seed: 15)
        let original = Array(Self.document.utf8)
        var count = 0
        for _ in 0..<20_000 {
            var bytes = original
            for _ in 0..<Int.random(in: 1...3, using: &random) {
                let place = Int.random(in: 0..<bytes.count, using: &random)
                switch Int.random(in: 0..<3, using: &random) {
                case 0: bytes[place] = .random(in: 0...255, using: &random)
                case 1: bytes.remove(at: place)
                default: bytes.insert(#"{}[],:"\0e-u "#.utf8.randomElement(using: &random) ?? 0, at: place)
                }
            }
            guard let value = try? JSONValue(parsing: bytes) else { continue }
            count += 1
            let again = try APIRequestConfig(path: "/", body: .json(value)).resolved { _ in nil }.body
            #expect(try JSONValue(parsing: again) == value)
        }
        #expect(count > 1000)
    }
}
