// Seals the body of an upload as it comes: the whole body, or the files in a multipart form.
//
// A form goes on part by part. A field passes when it is complete, and a file is sealed under a head that says nothing of
// it. What the mapping does not name ends the upload, and the backend gets an incomplete request.
//
// Texts of the message that shows the files are held. They are sealed together when the form has come, and follow last.

package import HTTPCodec
package import JSONCodec
package import Vault

/// Why an upload by a form is refused.
package enum UploadFault: Error, Equatable, Sendable {
    case form(MultipartFault)
    /// A part has a name that the mapping does not list.
    case unknownPart
    /// A part that has to be a file has no name of a file.
    case noFile
    /// A part that has to be a text is a file.
    case fileInField
    /// A text is longer than ``FormSealer/fieldLimit``.
    case fieldTooLong

    /// One fault of each kind.
    package static let all: [UploadFault] =
        MultipartFault.allCases.map { .form($0) } + [.unknownPart, .noFile, .fileInField, .fieldTooLong]

    /// The fault in words, for people.
    package var words: String {
        switch self {
        case .form(let fault): "Not sent: the form with the file cannot be protected: \(fault.words)."
        case .unknownPart:
            "Not sent: the form with the file has a part that is not known here, so it cannot be protected."
        case .noFile: "Not sent: the form has a file without a name, so it cannot be protected."
        case .fileInField: "Not sent: the form has a file where a text is expected, so it cannot be protected."
        case .fieldTooLong: "Not sent: a text in the form with the file is too long."
        }
    }
}

/// The texts of a form, with which it ends when they are sealed.
package struct FormTexts: Sendable {
    package let parts: [FormPart]
    package let boundary: MultipartBoundary

    package init(_ parts: [FormPart], _ boundary: MultipartBoundary) {
        (self.parts, self.boundary) = (parts, boundary)
    }
}

/// Seals one body. Holds at most one chunk of a file, a head or a field.
package struct BodySealer: Sendable {
    private var file: SealedFile.Sealer?
    private var form: FormSealer?

    /// Seals the whole body.
    package init(file: SealedFile.Sealer) { self.file = file }

    /// Seals the files in a form.
    package init(form: FormSealer) { self.form = form }

    /// Whether the body's length is known before it is sealed.
    package var keepsLength: Bool { form == nil }

    /// The texts to seal when the body has come; nil if nothing is to follow it.
    package var texts: FormTexts? { form?.texts }

    /// Appends what precedes the body, once and first.
    package mutating func begin(into output: inout [UInt8]) throws { try file?.begin(into: &output) }

    /// Takes the next bytes of the body, and appends what is sealed of them.
    ///
    /// - Throws: ``UploadFault`` if a form cannot be sealed; other errors if a file is too large.
    package mutating func seal(_ bytes: UnsafeRawBufferPointer, into output: inout [UInt8]) throws {
        try file?.seal(bytes, into: &output)
        try form?.seal(bytes, into: &output)
    }

    /// Appends what follows the body.
    ///
    /// - Throws: as ``seal(_:into:)``.
    package mutating func end(into output: inout [UInt8]) throws {
        try file?.end(into: &output)
        try form?.end()
    }
}

/// Seals the files in a multipart form.
package struct FormSealer: Sendable {
    /// The name under which the backend gets a file. Its type is that of any bytes.
    package static let fileName = "encrypted.bin"
    /// The name of a file's part if the mapping names none.
    package static let fieldName = "file"
    /// Ours: maximum bytes of a field that passes, which is held until it is complete, and of all texts.
    package static let fieldLimit = 64 << 10

    private let key: SealedFile.Key
    private let parts: [String: FilePlaces.Part]
    private var reader: MultipartReader
    private var file: SealedFile.Sealer?
    /// Files of the form so far. A form has at most ``MultipartReader/partLimit`` parts.
    private var files: UInt8 = 0
    /// The head of the field that is read; nil if a file is read, or nothing.
    private var head: MultipartHead?
    private var field: [UInt8] = []
    private var held: [FormPart] = []
    /// Bytes in `held`.
    private var heldBytes = 0
    /// The texts of the message; nil if the form can have none.
    fileprivate var texts: FormTexts? { parts.values.contains(.text) ? FormTexts(held, reader.boundary) : nil }

    package init(_ key: SealedFile.Key, _ boundary: MultipartBoundary, _ parts: [String: FilePlaces.Part]) {
        (self.key, self.parts) = (key, parts)
        reader = MultipartReader(boundary)
    }

    mutating func seal(_ bytes: UnsafeRawBufferPointer, into output: inout [UInt8]) throws {
        reader.append(bytes)
        while let piece = try next() {
            switch piece {
            case .head(let head): try begin(head, into: &output)
            case .bytes(let bytes):
                guard file == nil else {
                    try bytes.withUnsafeBytes { try file?.seal($0, into: &output) }
                    continue
                }
                guard heldBytes + field.count + bytes.count <= Self.fieldLimit else { throw UploadFault.fieldTooLong }
                field += bytes
            case .end: try end(into: &output)
            // The texts and the end of the form follow.
            case .over where texts != nil: break
            case .over: output += Array("--".utf8) + reader.boundary.bytes + Array("--\r\n".utf8)
            }
        }
    }

    func end() throws(UploadFault) {
        do throws(MultipartFault) { try reader.finish() } catch { throw .form(error) }
    }

    private mutating func next() throws(UploadFault) -> MultipartReader.Piece? {
        do throws(MultipartFault) { return try reader.next() } catch { throw .form(error) }
    }

    private mutating func begin(_ head: MultipartHead, into output: inout [UInt8]) throws {
        switch parts[head.name] ?? parts[FilePlaces.anyPart] {
        case nil: throw UploadFault.unknownPart
        case .pass:
            guard head.fileName == nil else { throw UploadFault.fileInField }
            self.head = head
        case .text:
            guard head.fileName == nil else { throw UploadFault.fileInField }
            guard head.holdsText else { throw UploadFault.form(.head) }
            heldBytes += head.received.count
            self.head = head
        case .file:
            guard let name = head.fileName, !name.isEmpty else { throw UploadFault.noFile }
            // A name that the mapping does not have may be that of the file, as some client libraries write it.
            let field = parts[head.name] == nil ? Self.fieldName : head.name
            output += Array("--".utf8) + reader.boundary.bytes
            output += Array(
                ("\r\nContent-Disposition: form-data; name=\"\(field)\"; filename=\"\(Self.fileName)\"\r\n"
                    + "Content-Type: application/octet-stream\r\n\r\n").utf8)
            var sealer = SealedFile.Sealer(key.file(files), SealedFile.Description(type: head.type, name: name))
            files += 1
            try sealer.begin(into: &output)
            file = sealer
        }
    }

    private mutating func end(into output: inout [UInt8]) throws {
        if let head {
            // A delimiter behind a bare line feed is one for some programs.
            guard !reader.boundary.isIn(field) else { throw UploadFault.form(.delimiter) }
            self.head = nil
            defer { field = [] }
            if parts[head.name] ?? parts[FilePlaces.anyPart] == .text {
                heldBytes += field.count
                held.append(FormPart(name: Array(head.name.utf8), value: field, head: head.received))
                return
            }
            output += Array("--".utf8) + reader.boundary.bytes + Array("\r\n".utf8) + head.received
            output += Array("\r\n".utf8) + field
        } else {
            try file?.end(into: &output)
            file = nil
        }
        output += Array("\r\n".utf8)
    }
}
