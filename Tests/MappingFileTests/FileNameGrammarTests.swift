import HTTPCodec
import JSONGateway
import Testing

@testable import MappingFile

/// What routes of files say about names and thumbnails.
@Suite struct FileNameGrammarTests {
    private static let whole = """
        name: other
        account: {credential: header A, ask: GET /me, name: id}
        content: {text: text, flag: encrypted}
        messages: {written: {conversation: to}}
        routes:
          POST /c: content written
          POST /files: {label: upload, file_name: query name}
          GET /files/{file}: download
          GET /c/{room}/thumbs/{file}?size: {label: download, thumbnail_of: 'GET /files/{file}?of={room}'}
        """

    @Test func everyKeyIsRead() throws {
        let mapping = try mapping(Self.whole)
        #expect(mapping.routes.map(\.file.name) == [nil, "name", nil, nil])
        #expect(mapping.routes.map(\.file.whole) == [nil, nil, nil, "/files/{file}?of={room}"])
        #expect(mapping.routes.map(\.label) == [.content, .upload, .download, .download])
    }

    @Test(arguments: [
        ("file_name: query name", "file_name: name", "expected `query NAME`"),
        ("file_name: query name", "file_name: header name", "expected `query NAME`"),
        ("file_name: query name", "file_name: 'query a&b'", "expected `query NAME`"),
        ("file_name: query name", "file_name: [query name]", "`file_name`"),
        ("{label: upload, file_name", "{label: media, file_name", "has a meaning in an `upload` only"),
        ("POST /c: content written", "POST /c: {label: content written, file_name: query n}", "in an `upload` only"),
        ("GET /files/{file}: download", "GET /files/{file}: {label: download, file_name: query n}", "`upload` only"),
        ("{label: upload, file_name: query name}", "{label: upload, thumbnail_of: GET /f}", "in a `download` only"),
        ("?of={room}'", "?of={rom}'", "holds a name in braces that"),
        ("'GET /files/{file}?of={room}'", "'POST /files/{file}'", "`thumbnail_of`"),
        ("'GET /files/{file}?of={room}'", "'/files/{file}'", "`thumbnail_of`"),
        ("'GET /files/{file}?of={room}'", "[GET /files]", "`thumbnail_of`"),
    ]) func mistakesAreReported(_ old: String, _ new: String, _ words: String) {
        #expect(Self.whole.contains(old))
        let found = problems(Self.whole.replacing(old, with: new, maxReplacements: 1))
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }
}
