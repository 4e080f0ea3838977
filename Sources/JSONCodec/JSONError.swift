/// Why bytes are not a JSON document that we take. All of it is the fault of whoever wrote the document; sending the
/// same bytes again does not help.
package struct JSONError: Error, Equatable, Sendable {
    /// What is wrong.
    package enum Code: Equatable, Sendable, CaseIterable {
        /// Nothing but white space, or nothing at all.
        case empty
        /// The bytes so far begin a document, and there are no more of them.
        case endsEarly
        /// A byte that cannot stand there: no value, no comma, the wrong bracket, a byte order mark.
        case unexpectedByte
        /// More than white space behind the value.
        case trailingBytes
        /// A string holds bytes that are not UTF-8 (RFC 3629): a continuation byte alone, a form that is too long,
        /// a surrogate, a code point above U+10FFFF, a sequence that breaks off.
        case invalidUTF8
        /// A backslash with something behind it that section 7 does not know.
        case invalidEscape
        /// A byte below 0x20 inside a string.
        case controlCharacter
        /// Larger than ``JSONLimits/size``.
        case tooLarge
        /// Deeper than ``JSONLimits/depth``.
        case tooDeep
        /// More in one container than ``JSONLimits/members``.
        case tooManyMembers
        /// More in all than ``JSONLimits/values``.
        case tooManyValues
        /// Longer than ``JSONLimits/stringLength``.
        case stringTooLong
        /// Longer than ``JSONLimits/numberLength``.
        case numberTooLong
    }

    package let code: Code
    /// Where, in bytes from the beginning of the document.
    package let offset: Int

    init(_ code: Code, at offset: Int) { (self.code, self.offset) = (code, offset) }

    /// Whether the whole document holds more than ``JSONLimits`` allow.
    package var isTooMuch: Bool { code == .tooLarge || code == .tooManyValues || code == .tooManyMembers }
}

extension JSONError: CustomStringConvertible {
    /// In words, without anything of the document in it: safe to log.
    package var description: String {
        let what =
            switch code {
            case .empty: "there is no value"
            case .endsEarly: "the document ends in the middle"
            case .unexpectedByte: "this byte cannot stand here"
            case .trailingBytes: "there is more behind the value"
            case .invalidUTF8: "this is not UTF-8"
            case .invalidEscape: "this is no escape of JSON"
            case .controlCharacter: "a control character in a string has to be escaped"
            case .tooLarge: "the document is larger than allowed"
            case .tooDeep: "arrays and objects stand deeper in each other than allowed"
            case .tooManyMembers: "this array or object has more in it than allowed"
            case .tooManyValues: "the document has more values than allowed"
            case .stringTooLong: "this string is longer than allowed"
            case .numberTooLong: "this number is longer than allowed"
            }
        return "not taken as JSON: \(what) (byte \(offset))"
    }
}
