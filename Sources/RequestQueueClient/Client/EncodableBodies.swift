// Bodies from an application's own types, and back.

public import Foundation
public import RequestQueue

extension RequestBody {
    /// A JSON body from a value of the application's own.
    ///
    /// An `EntityReference` anywhere in the value becomes the entity's remote identifier, a string, when the request is
    /// sent. The members of objects are sorted by name, so that a value has the same bytes in each process.
    ///
    /// - Parameter coders: how it is encoded; see ``APIClient/jsonCoderConfig``.
    /// - Throws: an error of the encoder, or `JSONValue.Malformed` if it is nested too deeply.
    public static func json(
        encoding value: some Encodable, with coders: APIJSONCoderConfig = APIJSONCoderConfig()
    ) throws -> RequestBody {
        let marks = ReferenceMarks(
            nonce: RequestToken(high: .random(in: .min ... .max), low: .random(in: .min ... .max)))
        let encoder = coders.encoder
        encoder.userInfo[ReferenceMarks.key] = marks
        encoder.outputFormatting.insert(.sortedKeys)
        return .json(marks.resolve(try JSONValue(parsing: Array(encoder.encode(value)))))
    }
}

extension APIClientResponse where Payload == Data {
    /// The body as a value of the application's own.
    ///
    /// - Throws: an error of the decoder.
    public func decoded<Value: Decodable>(as type: Value.Type = Value.self) throws -> Value {
        try jsonCoderConfig.decoder.decode(type, from: data)
    }
}
