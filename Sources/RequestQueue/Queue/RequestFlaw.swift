/// Finds what prevents a request from ever being sent.
enum RequestFlaw {
    /// Size of a stored request besides its form, in bytes.
    static let rowSize = 128

    /// The first flaw, in words; nil if there is none.
    ///
    /// - Parameter references: the entities that the request names.
    static func first(in new: NewRequest, _ references: [EntityReference], _ limits: QueueLimits) -> String? {
        let config = new.config
        if new.creates.count + new.dependsOn.count > limits.references || references.count > limits.references {
            return "it names more than \(limits.references) entities or requests"
        }
        if new.creates.count > 1, Set(new.creates).count != new.creates.count { return "it creates one entity twice" }
        if let own = references.first(where: new.creates.contains) {
            return "it names \(own), which it creates itself"
        }
        for case .raw(let text) in config.path.segments where !isTarget(text) {
            return "its raw path is no request target"
        }
        if case .json(let value) = config.body {
            if !value.isShallow() { return "its JSON is deeper than \(JSONValue.maximumDepth)" }
            if !numbersAreValid(value) { return "a number in its JSON is malformed" }
        }
        for item in config.headers.items {
            guard isToken(item.name) else {
                return "`\(item.name.prefix(32).filter(\.isASCII))` is no name of a header"
            }
            for case .text(let text) in item.value.elements where !isFieldValue(text) {
                return "the header `\(item.name)` holds a control character"
            }
        }
        if let timeout = config.timeoutInterval, timeout <= 0 { return "its timeout is not positive" }
        return nil
    }

    /// RFC 9110 section 5.6.2.
    private static func isToken(_ text: String) -> Bool {
        !text.isEmpty
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"):
                    true
                default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
                }
            }
    }

    /// RFC 9112 section 3.2: visible ASCII, without the fragment that is never sent.
    private static func isTarget(_ text: String) -> Bool {
        text.utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "#") }
    }

    /// RFC 9110 section 5.5.
    static func isFieldValue(_ text: String) -> Bool { text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 } }

    private static func numbersAreValid(_ value: JSONValue) -> Bool {
        switch value {
        case .number(let digits): isNumber(Array(digits.utf8))
        case .array(let values): values.allSatisfy(numbersAreValid)
        case .object(let members): members.allSatisfy { numbersAreValid($0.value) }
        case .null, .bool, .string, .reference: true
        }
    }

    /// RFC 8259 section 6.
    static func isNumber(_ text: [UInt8]) -> Bool {
        var rest = text[...]
        func digits() -> Int {
            let count = rest.prefix { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }.count
            rest = rest.dropFirst(count)
            return count
        }
        if rest.first == UInt8(ascii: "-") { rest = rest.dropFirst() }
        let leading = rest.first
        let whole = digits()
        guard whole > 0, whole == 1 || leading != UInt8(ascii: "0") else { return false }
        if rest.first == UInt8(ascii: ".") {
            rest = rest.dropFirst()
            guard digits() > 0 else { return false }
        }
        if rest.first == UInt8(ascii: "e") || rest.first == UInt8(ascii: "E") {
            rest = rest.dropFirst()
            if rest.first == UInt8(ascii: "+") || rest.first == UInt8(ascii: "-") { rest = rest.dropFirst() }
            guard digits() > 0 else { return false }
        }
        return rest.isEmpty
    }
}
