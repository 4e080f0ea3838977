/// All problems of a rejected configuration, not only the first.
package struct ConfigurationError: Error, Sendable, Equatable {
    /// The problems; never empty.
    package let problems: [Problem]

    /// - Parameter problems: at least one.
    package init(problems: [Problem]) { self.problems = problems }

    init(_ code: Code, _ message: String) { self.init(problems: [Problem(code: code, message: message)]) }

    /// One problem, with a message for the operator that never contains a secret.
    package struct Problem: Sendable, Equatable {
        /// The kind of problem.
        package let code: Code
        /// What was found and where, what is expected, and an example.
        package let message: String

        package init(code: Code, message: String) { (self.code, self.message) = (code, message) }
    }

    /// The kinds of problems.
    package enum Code: Sendable {
        /// A file is missing or cannot be read.
        case unreadable
        /// A file exceeds its size limit.
        case tooLarge
        /// The file is not UTF-8 or not YAML, or has the wrong structure.
        case syntax
        /// A key is written twice.
        case duplicateKey
        /// The key does not exist.
        case unknownKey
        /// No key has this environment variable.
        case unknownVariable
        /// The value has the wrong type, such as a list in place of a text.
        case wrongType
        /// The value is out of range or malformed.
        case wrongValue
        /// Values that are valid alone, but not together.
        case conflict
    }
}

extension ConfigurationError: CustomStringConvertible {
    package var description: String { self.problems.map(\.message).joined(separator: "\n") }
}

/// Why a value was rejected, as the end of the sentence "`key` is `value`, …".
///
/// The reason is `nil` if the expectation that follows in the message is enough.
struct Mismatch: Error {
    let reason: String?

    init(_ reason: String? = nil) {
        self.reason = reason
    }
}

/// The layer that a value comes from. A later case overrides the earlier ones.
enum Origin: Sendable, Equatable {
    case standard
    case file(path: String, line: Int)
    case environment(variable: String)
    case option(String)

    /// The place of `key`, as the beginning of a sentence.
    func place(of key: ConfigurationKey) -> String {
        switch self {
        case .standard: "the default of `\(key.name)`"
        case .file(let path, let line): "`\(key.name)` in \(path) line \(line)"
        case .environment(let variable): "`\(variable)` in the environment"
        case .option(let option): "`\(option)` on the command line"
        }
    }

    /// A valid value of `key`, as it is written in this layer.
    func example(of key: ConfigurationKey) -> String {
        switch self {
        case .standard, .file: "\(key.lastName): \(key.example.yaml)"
        case .environment(let variable): "\(variable)=\(key.example.joined)"
        case .option(let option): "\(option) \(key.example.first)"
        }
    }
}

extension ConfigurationError.Problem {
    /// Returns the problem of a value that its key does not accept.
    ///
    /// - Parameter found: the value in quotes, or a description if it is a secret or not a text.
    static func wrong(
        _ code: ConfigurationError.Code, _ key: ConfigurationKey, at origin: Origin, found: String,
        reason: String? = nil
    ) -> Self {
        let reason = reason.map { ", \($0)" } ?? ""
        return Self(
            code: code,
            message: "\(origin.place(of: key)) is \(found)\(reason); "
                + "expected \(key.kind.expectation), for example `\(origin.example(of: key))`")
    }
}

/// Quotes a text for a message. Control characters are escaped, and at most 100 scalars are shown.
package func quoted(_ text: String) -> String {
    let limit = 100
    var shown = ""
    for scalar in text.unicodeScalars.prefix(limit) {
        shown += scalar.properties.generalCategory == .control ? scalar.escaped(asASCII: true) : String(scalar)
    }
    return text.isEmpty ? "empty" : "`\(shown)\(text.unicodeScalars.count > limit ? "…" : "")`"
}
