/// Why bytes are not an accepted JSON document. The author of the document is at fault; sending the same bytes again
/// does not help.
package struct JSONError: Error, Equatable, Sendable {
    /// What is wrong.
    package enum Code: Equatable, Sendable, CaseIterable {
        /// Empty, or white space only.
        case empty
        /// The bytes are the beginning of a document, but end too early.
        case endsEarly
        /// A byte that is not allowed at this position: no value, no comma, the wrong bracket, a byte order mark.
        case unexpectedByte
        /// More than white space after the value.
        case trailingBytes
        /// A string has bytes that are not UTF-8 (RFC 3629): a lone continuation byte, an overlong form, a surrogate, a
        /// code point above U+10FFFF, an incomplete sequence.
        case invalidUTF8
        /// A backslash before a character that section 7 does not define as an escape.
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
    /// The offset from the beginning of the document, in bytes.
    package let offset: Int

    init(_ code: Code, at offset: Int) { (self.code, self.offset) = (code, offset) }

    /// Whether the document as a whole exceeds ``JSONLimits``: in size, values or members.
    package var isTooMuch: Bool { code == .tooLarge || code == .tooManyValues || code == .tooManyMembers }
}

extension JSONError: CustomStringConvertible {
    /// The error in words, without any content of the document: safe to log.
    package var description: String {
        let what =
            switch code {
            case .empty: "there is no value"
            case .endsEarly: "the document ends in the middle"
            case .unexpectedByte: "this byte is not allowed here"
            case .trailingBytes: "there are more bytes after the value"
            case .invalidUTF8: "this is not UTF-8"
            case .invalidEscape: "this is not a JSON escape"
            case .controlCharacter: "a control character in a string has to be escaped"
            case .tooLarge: "the document is larger than allowed"
            case .tooDeep: "arrays and objects are nested deeper than allowed"
            case .tooManyMembers: "this array or object has more members than allowed"
            case .tooManyValues: "the document has more values than allowed"
            case .stringTooLong: "this string is longer than allowed"
            case .numberTooLong: "this number is longer than allowed"
            }
        return "not accepted as JSON: \(what) (byte \(offset))"
    }
}
