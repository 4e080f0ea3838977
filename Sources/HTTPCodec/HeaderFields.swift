// Header fields in the sender's order and case, which the gateway preserves when it forwards them. RFC 9110 section 5.

/// The fields of a request or a response, in order.
package struct HeaderFields: Equatable, Sendable {
    /// One field line.
    package struct Field: Equatable, Sendable {
        package var name: String
        package var value: String

        package init(_ name: String, _ value: String) { (self.name, self.value) = (name, value) }

        /// Whether the value is UTF-8 text without control characters or escaped bytes.
        package var isText: Bool { FieldText.isText(value) }
    }

    package var fields: [Field]

    package init(_ fields: [Field] = []) { self.fields = fields }

    /// The values of all lines with this name, case ignored.
    package subscript(_ name: String) -> [String] {
        fields.compactMap { Self.areAlike($0.name, name) ? $0.value : nil }
    }

    /// The value of the first line with this name, case ignored; nil if there is none.
    package func first(_ name: String) -> String? {
        fields.first { Self.areAlike($0.name, name) }?.value
    }

    package mutating func add(_ name: String, _ value: String) { fields.append(Field(name, value)) }

    /// Replaces all lines with this name by one, in the position of the first.
    package mutating func set(_ name: String, to value: String) {
        if let index = fields.firstIndex(where: { Self.areAlike($0.name, name) }) {
            fields[index].value = value
            let rest = fields[(index + 1)...].filter { !Self.areAlike($0.name, name) }
            fields.replaceSubrange((index + 1)..., with: rest)
        } else {
            add(name, value)
        }
    }

    package mutating func remove(_ name: String) { fields.removeAll { Self.areAlike($0.name, name) } }

    /// The members of a list field from all of its lines, in lower case: `Connection: close, X-A`. Section 5.6.1.
    package func tokens(_ name: String) -> [String] {
        self[name].flatMap { value in
            value.split(separator: ",").map { member in
                String(member.drop { $0 == " " || $0 == "\t" }).lowercased().trimmedEnd
            }
        }
    }

    /// Whether two names are equal, with case ignored and underscores read as hyphens, as CGI-like interfaces do.
    package static func areOneBehindCGI(_ left: String, _ right: String) -> Bool {
        left.utf8.count == right.utf8.count
            && zip(left.utf8, right.utf8).allSatisfy {
                ($0 == 0x5F ? 0x2D : $0 | 0x20) == ($1 == 0x5F ? 0x2D : $1 | 0x20)
            }
    }

    static func areAlike(_ left: String, _ right: String) -> Bool {
        left.utf8.count == right.utf8.count
            && zip(left.utf8, right.utf8).allSatisfy { $0 == $1 || ($0 | 0x20 == $1 | 0x20 && ($0 | 0x20) >= 0x61) }
    }
}

extension HeaderFields: ExpressibleByDictionaryLiteral {
    package init(dictionaryLiteral elements: (String, String)...) {
        self.init(elements.map { Field($0.0, $0.1) })
    }
}

extension String {
    fileprivate var trimmedEnd: String {
        var text = Substring(self)
        while let last = text.last, last == " " || last == "\t" { text.removeLast() }
        return String(text)
    }
}
