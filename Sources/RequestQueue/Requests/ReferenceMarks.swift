// References inside of a value that an application encodes for the body of a request.

import Synchronization

/// Replaces references by marks while a value is encoded, and the marks by references when its JSON is read.
package final class ReferenceMarks: Sendable {
    /// Under this key an encoder of a body has its marks.
    package static let key: CodingUserInfoKey = {
        guard let key = CodingUserInfoKey(rawValue: "RequestQueue.ReferenceMarks") else {
            preconditionFailure("Every text is a key.")
        }
        return key
    }()

    private let prefix: String
    private let references = Mutex<[EntityReference]>([])

    /// - Parameter nonce: random, so that no text of an application is a mark.
    package init(nonce: RequestToken) { prefix = "reference \(nonce) " }

    func mark(_ reference: EntityReference) -> String {
        references.withLock { references in
            references.append(reference)
            return prefix + "\(references.count - 1)"
        }
    }

    /// The value with references in place of marks.
    package func resolve(_ value: JSONValue) -> JSONValue {
        switch value {
        case .string(let text):
            guard text.hasPrefix(prefix), let index = Int(text.dropFirst(prefix.count)),
                text == prefix + "\(index)"
            else { return value }
            let reference = references.withLock { $0.indices.contains(index) ? $0[index] : nil }
            return reference.map(JSONValue.reference) ?? value
        case .array(let values): return .array(values.map(resolve))
        case .object(let members): return .object(members.map { .init($0.name, resolve($0.value)) })
        case .null, .bool, .number, .reference: return value
        }
    }
}
