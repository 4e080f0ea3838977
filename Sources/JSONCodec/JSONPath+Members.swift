extension JSONPath {
    /// The names in the path if all steps are members; else nil. A value can be inserted at such a path even if none
    /// exists there yet. Empty for `$`.
    package var memberNames: [String]? {
        var names: [String] = []
        for step in steps {
            guard case .member(let name) = step else { return nil }
            names.append(String(decoding: name.bytes, as: UTF8.self))
        }
        return names
    }

    /// The name of the path's first step; nil if that step is not a member.
    package var firstMember: String? {
        guard case .member(let name)? = steps.first else { return nil }
        return String(decoding: name.bytes, as: UTF8.self)
    }

    /// The path to one member, quoted if the name needs it.
    package static func text(ofMember name: String) -> String {
        let isPlain = name.utf8.allSatisfy {
            UInt8(ascii: "a")...UInt8(ascii: "z") ~= $0 || UInt8(ascii: "A")...UInt8(ascii: "Z") ~= $0
                || $0 == UInt8(ascii: "_")
        }
        if isPlain, !name.isEmpty, name.utf8.count <= JSONPath.lengthLimit { return name }
        if let path = try? JSONPath(name), path.memberNames == [name] { return name }
        return "\"" + name.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
    }
}
